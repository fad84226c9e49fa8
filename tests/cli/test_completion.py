"""Completion in the shell: commands, options, and the names that a running core gives."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenhand.v1 import decisions_pb2, inspect_pb2
from evenhand_cli.app import app
from evenhand_cli.completion import POD_NAME, POD_NAMESPACE
from tests.cli import samples
from tests.cli.fake import FakeCore, running
from tests.cli.processes import environment
from tests.cli.test_listings import APPLICATIONS, NODES, PODS


@pytest.fixture(scope="module")
def core() -> Iterator[FakeCore]:
    prepared = FakeCore(
        ListAllocations=inspect_pb2.ListAllocationsResponse(allocations=PODS),
        ListNodes=inspect_pb2.ListNodesResponse(nodes=NODES),
        ListApplications=inspect_pb2.ListApplicationsResponse(applications=APPLICATIONS),
        ListPartitions=inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()]),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=samples.queue_tree()),
        ListDecisions=decisions_pb2.ListDecisionsResponse(
            decisions=[decisions_pb2.Decision(decision_id="g-1-1")]
        ),
    )
    with running(prepared) as started:
        yield started


def _asked(line: str, shell: str) -> dict[str, str]:
    """Return the variables with which a shell asks for completions at the end of a line."""
    asked = {"_EVENHAND_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        return asked | {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    return asked | {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}


def completed_here(line: str, capsys: pytest.CaptureFixture[str], core: str) -> list[str]:
    """Return the completions that bash gets from the program in this process, which writes no error."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (environment() | _asked(line, "bash") | {"EVENHAND_CORE": core}).items():
            patched.setenv(name, value)
        with pytest.raises(SystemExit):
            app([], prog_name="evenhand")
    out, error = capsys.readouterr()
    assert error == ""
    return list(filter(None, out.splitlines()))


def completed(line: str, shell: str = "bash", **variables: str) -> tuple[list[str], str]:
    """Return the completions that a shell gets at the end of a line, and the text on the error stream."""
    code = "import sys; sys.argv[0] = 'evenhand'; from evenhand_cli.app import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=environment() | _asked(line, shell) | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return list(filter(None, ended.stdout.splitlines())), ended.stderr


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("queues root.re", ["root.research"]),
        ("nodes gpu", ["gpu-10", "gpu-2"]),
        ("apps --user a", ["ada"]),
        ("allocations -n s", ["science", "shop"]),
        ("allocations --app fr", ["front"]),
        ("allocations --node cpu", ["cpu-1"]),
        ("decisions g-", ["g-1-1"]),
        ("explain science/train-1", ["science/train-1", "science/train-10"]),
        ("explain gp", ["gpu-10", "gpu-2"]),
        ("apps --partition d", ["default"]),
        ("que", ["queues"]),
    ],
)
def test_names_come_from_the_core(
    core: FakeCore, capsys: pytest.CaptureFixture[str], line: str, names: list[str]
) -> None:
    assert completed_here(f"evenhand {line}", capsys, core.address) == names


def test_a_process_gives_the_names_and_says_nothing_else(core: FakeCore) -> None:
    found = completed("evenhand nodes gpu", EVENHAND_CORE=core.address)
    assert found == (["gpu-10", "gpu-2"], "")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nodes --output ", ["table", "wide", "json", "yaml", "name"]),
        ("nodes --sort-by ", ["node", "state", "running", "cores", "memory", "notes"]),
        ("apps --sort-by w", ["waiting", "waits-for"]),
        ("allocations --sort-by p", ["pod", "priority", "protection"]),
        ("decisions --sort-by v", ["victims"]),
        ("queues --sort-by m", ["max"]),
        ("context list --sort-by c", ["current", "context", "core"]),
        ("events --kind re", ["released", "rejected"]),
        ("nodes --state ", ["ready", "draining"]),
        ("allocations --state w", ["waiting"]),
        ("allocations --protection ", ["normal", "prefer-not", "firm", "untouchable"]),
        ("decisions --policy t", ["trim"]),
        ("config check --ignore weight", ["weight-unused"]),
    ],
)
def test_the_values_of_options_are_completed_without_a_core(
    capsys: pytest.CaptureFixture[str], line: str, words: list[str]
) -> None:
    assert completed_here(f"evenhand {line}", capsys, "127.0.0.1:1") == words


def test_the_core_named_on_the_line_is_asked(core: FakeCore) -> None:
    for line in (
        f"evenhand --core {core.address} nodes cpu",
        f"evenhand nodes --core {core.address} cpu",
    ):
        assert completed(line) == (["cpu-1"], "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same_names(core: FakeCore, shell: str) -> None:
    found, _ = completed("evenhand nodes cpu", shell, EVENHAND_CORE=core.address)
    assert "cpu-1" in "\n".join(found)


def test_without_a_core_nothing_is_said() -> None:
    assert completed("evenhand nodes cpu", EVENHAND_CORE="127.0.0.1:1") == ([], "")
    assert completed("evenhand nodes cpu", EVENHAND_CORE="nonsense") == ([], "")


def test_names_that_came_before_a_failure_are_sorted_and_safe_for_a_terminal() -> None:
    pods = [
        inspect_pb2.Allocation(allocation_key=key, tags={POD_NAME: key, POD_NAMESPACE: "work"})
        for key in ("b", "\x1b]0;c\x07", "a")
    ]
    answers = FakeCore(ListAllocations=inspect_pb2.ListAllocationsResponse(allocations=pods))
    with running(answers) as core:
        found = completed("evenhand explain ", EVENHAND_CORE=core.address)
    assert found == (["work/a", "work/b"], "")


def test_contexts_are_completed(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("contexts:\n  production: {}\n  local: {}\n")
    place = {"EVENHAND_CONFIG": str(file)}
    assert completed("evenhand context use p", **place) == (["production"], "")
    assert completed("evenhand nodes --context l", **place) == (["local"], "")
