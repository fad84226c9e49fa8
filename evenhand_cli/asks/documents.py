"""The objects of a YAML or JSON file, each with the line on which it begins."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from evenhand_cli.faults import Fault
from evenhand_cli.files import FILE_BYTES_MAX, read_text

WHERE = "argument FILE"
STANDARD_INPUT = Path("-")
TIMESTAMP = "tag:yaml.org,2002:timestamp"


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
        """The Kubernetes kind of the object; empty when it names none."""
        kind = self.item.get("kind", "")
        return kind if isinstance(kind, str) else ""

    def fault(self, what: str, advice: str = "") -> Fault:
        """Return a fault that names the place of this object."""
        return Fault(what, where=self.place, advice=advice)


def read(path: Path) -> list[Document]:
    """Return the objects of a file, those of a List one by one. Raises Fault."""
    text = _standard_input() if path == STANDARD_INPUT else read_text(path, WHERE)
    return parsed(text, str(path))


def parsed(text: str, name: str) -> list[Document]:
    """Return the objects of a text, those of a List one by one; `name` is the text's name in messages. Raises Fault."""
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
    loader = Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None, "check_node said that there is one"
            place = f"{name}:{node.start_mark.line + 1}"
            item = loader.construct_document(node)
            if item is None:
                continue
            if not isinstance(item, dict):
                raise Fault("this is no object", where=place, advice=ADVICE)
            yield Document(item, place)
    finally:
        loader.dispose()


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
