"""The objects of a YAML or JSON file, each with the line on which it begins."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from evenhand_cli.faults import Fault
from evenhand_cli.files import FILE_BYTES_MAX, read_text

WHERE = "argument FILE"
STANDARD_INPUT = Path("-")
TIMESTAMP = "tag:yaml.org,2002:timestamp"
DEPTH_MAX: Final = 100
"""Largest depth of nested mappings and lists.

The parser needs stack memory for each level, and a stack overflow ends the process.
"""
REPEATED_MAX: Final = 100_000
"""Largest number of values for which the aliases of a YAML text stand.

For each alias, all values of the node that the alias names are counted.
"""


class Loader(yaml.CSafeLoader):
    """A loader of YAML that keeps instants as text, as an API server does."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != TIMESTAMP]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Document:
    """An object of a file; `place` is its file and line, for messages."""

    item: dict[str, Any]
    place: str

    @property
    def kind(self) -> str:
        """The Kubernetes kind that the object names, or "" if it names no kind."""
        kind = self.item.get("kind", "")
        return kind if isinstance(kind, str) else ""

    def fault(self, what: str, advice: str = "") -> Fault:
        """Return a fault that names the place of this object."""
        return Fault(what, where=self.place, advice=advice)


def read(path: Path) -> list[Document]:
    """Return the objects of a file. A List is replaced by its items.

    Raises Fault if the file cannot be read, is not YAML, or holds anything but objects.
    """
    text = _standard_input() if path == STANDARD_INPUT else read_text(path, WHERE)
    return parsed(text, str(path))


def parsed(text: str, name: str) -> list[Document]:
    """Return the objects of a text. A List is replaced by its items. `name` is the text's name in messages.

    Raises Fault if the text is not YAML, or holds anything but objects.
    """
    try:
        return [one for document in _documents(text, name) for one in _flattened(document)]
    except yaml.MarkedYAMLError as bad:
        mark = bad.problem_mark or bad.context_mark
        raise Fault(
            f"this is not YAML: {bad.problem or bad.context}",
            where=f"{name}:{mark.line + 1 if mark else 1}",
            advice="correct that line",
        ) from bad
    except (yaml.YAMLError, RecursionError, ValueError) as bad:
        raise Fault(
            f"this is not YAML: {bad}", where=f"{name}:1", advice="name the right file"
        ) from bad


def _standard_input() -> str:
    text = sys.stdin.read(FILE_BYTES_MAX + 1)
    if len(text) > FILE_BYTES_MAX:
        raise Fault(f"the input is larger than {FILE_BYTES_MAX:,} characters", where=WHERE)
    return text


def _documents(text: str, name: str) -> Iterator[Document]:
    _check_depth(text, name)
    loader = Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None, "check_node said that there is one"
            _Aliases(name).check(node)
            place = f"{name}:{node.start_mark.line + 1}"
            item = loader.construct_document(node)
            if item is None:
                continue
            if not isinstance(item, dict):
                raise Fault("this is no object", where=place, advice=ADVICE)
            yield Document(item, place)
    finally:
        loader.dispose()


def _check_depth(text: str, name: str) -> None:
    """Raise Fault for a text that is nested too deeply.

    The check reads the parser's events, and makes no YAML nodes: YAML nodes are made recursively, so that deep nesting
    could overflow the stack.
    """
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise Fault(
                    f"nested deeper than {DEPTH_MAX} levels",
                    where=f"{name}:{_line(event)}",
                    advice="write it with fewer levels",
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _line(item: yaml.Event | yaml.Node) -> int:
    return item.start_mark.line + 1 if item.start_mark is not None else 1


@dataclass(slots=True)
class _Aliases:
    """The count of the values that the aliases of a document stand for, and the check of this count against REPEATED_MAX."""

    name: str
    repeated: int = 0
    known: dict[yaml.Node, tuple[int, int] | None] = field(default_factory=dict)
    """The numbers of values and of levels of each YAML node, aliases included; None while the node is being counted."""

    def check(self, node: yaml.Node) -> tuple[int, int]:
        """Return the number of values and the number of levels of a YAML node.

        Raises Fault if aliases repeat too much, or lead in a circle. In a text, an alias comes after the node that the
        alias names, so that this node was counted before. For this reason the recursion of this function is no deeper
        than the nesting of the text.
        """
        if isinstance(node, yaml.ScalarNode):
            return 1, 0
        if node in self.known:
            counted = self.known[node]
            if counted is None:
                raise self._fault(node, "an alias is part of what it names")
            self.repeated += counted[0]
            if self.repeated > REPEATED_MAX:
                raise self._fault(node, f"aliases repeat more than {REPEATED_MAX:,} values")
            return counted
        self.known[node] = None
        values, levels = 1, 1
        for child in _children(node):
            more, below = self.check(child)
            values, levels = values + more, max(levels, below + 1)
        if levels > DEPTH_MAX:
            raise self._fault(node, f"nested deeper than {DEPTH_MAX} levels by aliases")
        self.known[node] = values, levels
        return values, levels

    def _fault(self, node: yaml.Node, what: str) -> Fault:
        where = f"{self.name}:{_line(node)}"
        return Fault(what, where=where, advice="write the values without aliases")


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    for each in node.value:
        if isinstance(each, tuple):
            yield from each
        else:
            yield each


def _flattened(document: Document) -> Iterator[Document]:
    items = document.item.get("items")
    if not (document.kind.endswith("List") and isinstance(items, list)):
        yield document
        return
    for number, item in enumerate(items):
        place = f"{document.place}, items[{number}]"
        if not isinstance(item, dict):
            raise Fault("this is no object", where=place, advice=ADVICE)
        yield Document(item, place)


ADVICE = "write pods, workloads and PriorityClasses as for Kubernetes, or asks: see the user guide"
