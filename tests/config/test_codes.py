"""Codes of warnings: they are stable and documented, each with advice; the text of an error says more than its code."""

import re
from pathlib import Path

import pytest

from server.config import examine, load
from server.config.codes import CODES

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
TWO = """
partitions:
  - name: default
    ignorewarnings: [cpu-is-vcore]
    queues: [{name: root, submitacl: "*", queues: [{name: a, resources: {max: {cpu: 1}}}]}]
  - name: gpu
    queues: [{name: root, submitacl: "*", queues: [{name: a, resources: {max: {cpu: 1}}}]}]
"""


def test_the_page_lists_every_code_in_order() -> None:
    table = PAGE.split("## Warnings", 1)[1]
    listed = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert listed == list(CODES) == sorted(CODES)


def test_a_code_is_silenced_in_its_partition_alone() -> None:
    configuration, problems, silenced = examine(TWO, "f")
    assert configuration is not None
    assert [(one.code, one.path.partition(".")[0]) for one in problems] == [
        ("cpu-is-vcore", "partitions[1]")
    ]
    assert [(one.code, one.line) for one in silenced] == [("cpu-is-vcore", 5)]
    assert load(TWO, "f") == (configuration, problems)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("partitions:\n\t- name: a\n", "a tab; YAML indents with spaces"),
        ("partitions:\n  - name: default\n\tqueues: []\n", "a tab; YAML indents with spaces"),
        (TWO.replace("cpu: 1", "vcore: 6.5"), "write thousandths, as in `6500m`"),
        (
            TWO.replace(
                "[cpu-is-vcore]", "[]\n    placementrules: [{name: fixed, value: root.aa}]"
            ),
            "the queue root.aa does not exist, and create is not set, did you mean 'root.a'?",
        ),
    ],
)
def test_a_refusal_says_what_to_write(text: str, says: str) -> None:
    assert any(says in one.message for one in load(text, "f")[1])
