"""Short texts to read: parts of YAML that are put into their place, and the line that a comment `# <-` marks."""

import textwrap
from typing import Any

import pytest

from server.config import Problem, load
from server.model.quota import Configuration, PartitionSpec, QueueSpec

MARK = "# <-"


def partition(text: str) -> str:
    """Return the text as the keys of one partition."""
    return "partitions:\n  - name: default\n" + textwrap.indent(
        textwrap.dedent(text).strip("\n"), "    "
    )


def tops(text: str) -> str:
    """Return the text as the list of top queues of one partition."""
    return partition("queues:\n" + textwrap.indent(textwrap.dedent(text).strip("\n"), "  "))


def below(text: str) -> str:
    """Return the text as queues below a root that all users may use."""
    inner = textwrap.indent(textwrap.dedent(text).strip("\n"), "    ")
    return tops("- name: root\n  submitacl: '*'\n  queues:\n" + inner)


def marked_line(text: str) -> int:
    """Return the line with the mark, counted from 1."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if MARK in line)


def problems(text: str) -> list[Problem]:
    """Return the problems that `load` finds, after checking that only a text without errors gives a configuration."""
    configuration, found = load(text, "queues.yaml")
    failed = any(problem.severity == "error" for problem in found)
    assert (configuration is None) == failed, found
    return found


def accepted(text: str) -> Configuration:
    """Return the configuration of a text without errors."""
    configuration, found = load(text)
    assert configuration is not None, "\n".join(str(problem) for problem in found)
    return configuration


def only_partition(text: str) -> PartitionSpec:
    (one,) = accepted(text).partitions
    return one


def queue(text: str, path: str = "root.a") -> QueueSpec:
    """Return the queue at a path in the only partition."""
    spec = only_partition(text).root
    for name in path.split(".")[1:]:
        spec = next(child for child in spec.children if child.name == name)
    return spec


def cases(*table: tuple[Any, ...]) -> list[Any]:
    """Return the rows of a table, each named by its first column."""
    return [pytest.param(*row, id=title) for title, *row in table]


def assert_problem(text: str, severity: str, path: str, words: str) -> None:
    """Assert that there is one problem of this severity, at the marked line and path, with these words."""
    found = problems(text)
    fitting = [one for one in found if one.severity == severity and one.path.endswith(path)]
    assert fitting, "\n".join(str(one) for one in found)
    assert [one.line for one in fitting] == [marked_line(text)]
    assert words in fitting[0].message, fitting[0].message
    assert (severity == "warning") == bool(fitting[0].consequence)
