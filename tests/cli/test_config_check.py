"""`evenhand config check` needs no core: problems with their lines, exit code 1 on an error."""

from pathlib import Path

import pytest

from tests.cli.run import evenhand

GOOD = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues:
          - name: research
            resources:
              guaranteed: {vcore: 8, memory: 32Gi}
              max: {vcore: 24, memory: 96Gi}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queues.yaml"


def test_a_good_file(file: Path) -> None:
    file.write_text(GOOD)
    ended = evenhand("config", "check", str(file))
    assert ended.code == 0
    assert ended.out.replace("\n", "") == f"{file}: good"
    value = evenhand("config", "check", str(file), "-o", "json").value()
    assert value == {
        "source": str(file),
        "valid": True,
        "problems": [],
        "silenced": [],
        "notes": [],
    }


@pytest.mark.parametrize(
    ("wrong", "line", "path"),
    [
        (GOOD.replace("max:", "mox:"), 10, "partitions[0].queues[0].queues[0].resources.mox"),
        (
            GOOD.replace("32Gi", "32Gx"),
            9,
            "partitions[0].queues[0].queues[0].resources.guaranteed.memory",
        ),
        (GOOD.replace("vcore: 8,", "vcore: 80,"), 9, None),
        ("partitions: [", 2, None),
        ("", 1, None),
    ],
)
def test_an_error_has_its_line(file: Path, wrong: str, line: int, path: str | None) -> None:
    file.write_text(wrong)
    ended = evenhand("config", "check", str(file), "-o", "json")
    problem = ended.value()["problems"][0]
    assert ended.code == 1
    assert ended.value()["valid"] is False
    assert problem["severity"] == "error"
    assert problem["line"] == line
    assert path is None or problem["path"] == path


def test_a_warning_has_a_consequence_and_is_no_error(file: Path) -> None:
    properties = "            properties: {preemption.delay: never}\n"
    file.write_text(GOOD + properties)
    ended = evenhand("config", "check", str(file), "-o", "json")
    (problem,) = ended.value()["problems"]
    assert ended.code == 0
    assert problem["severity"] == "warning"
    assert problem["consequence"]


def test_all_stages_are_told_at_once_with_what_to_do(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = GOOD.replace("guaranteed", "guarantied").replace("24, memory: 96Gi", "twenty")
    file.write_text(
        wrong
        + "          - name: batch\n            resources: {guaranteed: {vcore: 5}, max: {vcore: 1}}\n"
    )
    monkeypatch.chdir(file.parent)
    ended = evenhand("config", "check", "queues.yaml", width=60)
    assert ended.out.splitlines() == [
        "queues.yaml:9: error: unknown key 'guarantied', did you mean",
        "          'guaranteed'?",
        "    at    partitions[0].queues[0].queues[0].resources.",
        "          guarantied",
        "queues.yaml:10: error: 'twenty' is not a quantity of vcore:",
        "          write a whole number, then nothing or k, M, G, T,",
        "          P, E, Ki, Mi, Gi, Ti, Pi, Ei",
        "    at    partitions[0].queues[0].queues[0].resources.max.",
        "          vcore",
        "queues.yaml:12: error: vcore 5 is more than the queue's max",
        "          of vcore 1",
        "    at    partitions[0].queues[0].queues[1].resources.",
        "          guaranteed.vcore",
        "    do    lower the guarantee, or raise max",
        "queues.yaml: 3 errors, 0 warnings; it cannot be applied",
    ]
