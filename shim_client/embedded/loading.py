"""The loading of a directory of Kubernetes YAML or JSON files into objects that know their file and line.

A file that is not YAML is an error with its line. A file that begins with `{` is first read as a series of JSON
documents, which is fifty times as fast. Manifests of large clusters are written as such a series.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from shim_client.cluster import ObjectRef
from shim_client.embedded.admission import DEFAULT_NAMESPACE, NAMESPACED

QUEUES_FILE = "queues.yaml"
"""The only file of a cluster directory that contains no Kubernetes objects: the queue configuration of the core."""
SUFFIXES = frozenset({".yaml", ".yml", ".json"})
FILE_BYTES_MAX = 256 * 1024 * 1024
OBJECTS_MAX = 1_000_000
DEPTH_MAX = 100
"""The largest depth of nested mappings and lists of a YAML file. The core has the same limit for `queues.yaml`.

For JSON, Python's own parser has a limit.
"""

KINDS_IN_ORDER = (
    "Namespace",
    "ConfigMap",
    "PriorityClass",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "PodGroup",
    "Node",
    "DaemonSet",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "Job",
    "Pod",
)
"""The kinds of objects that an embedded cluster keeps, in the order in which their objects are created."""
_GROUPS = {"PodGroup": "scheduling.k8s.io/"}
"""Kinds whose names other software uses for its own kinds, too.

Each kind is listed with the API group whose objects are kept.
"""


class BadFileError(Exception):
    """A file that cannot be read.

    The message names the file, the line and the reason.
    """


@dataclass(frozen=True, slots=True)
class FileObject:
    """An object of a file; `place` is the name of the file."""

    kind: str
    item: dict[str, Any]
    place: str

    def ref(self) -> ObjectRef:
        """Return the reference of the object, with the default namespace where the kind has namespaces."""
        metadata = self.item["metadata"]
        namespace = str(metadata.get("namespace") or DEFAULT_NAMESPACE)
        return ObjectRef(self.kind, namespace if self.kind in NAMESPACED else "", metadata["name"])


@dataclass(slots=True)
class Manifests:
    """The content of a directory, or of several texts. `queues` is the text of QUEUES_FILE, or "" without this file."""

    objects: list[FileObject] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    """Number of objects by kind, for the kinds that the embedded cluster does not keep."""
    queues: str = ""
    broken: dict[str, BadFileError] = field(default_factory=dict)
    """Files that cannot be read, by name.

    Their objects are not in `objects`.
    """


class _Loader(yaml.CSafeLoader):
    """A loader of YAML that keeps instants as text, as the API server does."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read_directory(directory: Path) -> Manifests:
    """Return all objects under a directory in creation order.

    Raises BadFileError when any file cannot be read.
    """
    found = read_good_files(directory)
    for bad in found.broken.values():
        raise bad
    return found


def read_good_files(directory: Path) -> Manifests:
    """Return the objects of all readable files, and the errors of all other files.

    Raises BadFileError when there is no directory.
    """
    if not directory.is_dir():
        raise BadFileError(f"{directory}: there is no such directory")
    found = Manifests()
    for path in manifest_files(directory):
        name, before = str(path.relative_to(directory)), len(found.objects)
        try:
            if path.name == QUEUES_FILE and path.parent == directory:
                found.queues = _text(path)
            else:
                _read_text(_text(path), name, found)
        except BadFileError as bad:
            del found.objects[before:]
            found.broken[name] = bad
    _sort(found)
    return found


def manifest_files(directory: Path) -> list[Path]:
    """Return the files under a directory that are read, in the order of their paths."""
    return [
        path for path in sorted(directory.rglob("*")) if path.suffix in SUFFIXES and path.is_file()
    ]


def read_manifests(texts: Iterable[tuple[str, str]]) -> Manifests:
    """Return the objects of several texts in creation order.

    Each text comes with its name. Raises BadFileError if a text cannot be read.
    """
    found = Manifests()
    for name, text in texts:
        _read_text(text, name, found)
    _sort(found)
    return found


def _sort(found: Manifests) -> None:
    found.objects.sort(key=lambda one: KINDS_IN_ORDER.index(one.kind))


def _read_text(text: str, name: str, found: Manifests) -> None:
    for index, (offset, document) in enumerate(_documents(text, name)):
        if document is None:
            continue
        for nth, item in _flattened(document):
            _keep(item, _Place(name, text, offset, index, nth), found)


def _keep(item: object, place: _Place, found: Manifests) -> None:
    if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
        raise BadFileError(f"{place.exact()}: this is not a Kubernetes object with a kind")
    metadata = item.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise BadFileError(f"{place.exact()}: this {item['kind']} has no metadata.name")
    if len(found.objects) >= OBJECTS_MAX:
        raise BadFileError(f"{place.exact()}: more than {OBJECTS_MAX} objects")
    if is_kept(item):
        found.objects.append(FileObject(item["kind"], item, place.short()))
    else:
        found.ignored[item["kind"]] += 1


def is_kept(item: Mapping[str, Any]) -> bool:
    """Return whether an embedded cluster keeps objects of this kind and API group."""
    kind = str(item.get("kind"))
    return kind in KINDS_IN_ORDER and str(item.get("apiVersion")).startswith(_GROUPS.get(kind, ""))


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an object in a file. Its line is computed only when the line is needed."""

    name: str
    text: str
    offset: int | None
    """Offset in characters at which the document begins.

    The offset is None in a YAML file, because the parser does not report it.
    """
    document: int
    nth: int | None

    def short(self) -> str:
        """Return the file's name."""
        return self.name

    def exact(self) -> str:
        """Return file and line; a YAML file is parsed again to find the line."""
        if self.offset is not None:
            return f"{self.name}:{self.text.count(chr(10), 0, self.offset) + 1}"
        nodes = list(yaml.compose_all(self.text, Loader=yaml.CSafeLoader))
        node = nodes[self.document] if self.document < len(nodes) else None
        if self.nth is not None and isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == "items" and isinstance(value, yaml.SequenceNode):
                    node = value.value[self.nth]
                    break
        line = node.start_mark.line + 1 if node is not None else 1
        return f"{self.name}:{line}"


def _flattened(document: object) -> Iterator[tuple[int | None, object]]:
    """Yield the objects of a document: the document itself, or the items of a List."""
    if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
        items = document.get("items")
        if isinstance(items, list):
            yield from enumerate(items)
            return
    yield None, document


def _documents(text: str, name: str) -> list[tuple[int | None, Any]]:
    """Return the documents of a file, each with its offset in characters (None for YAML).

    Raises BadFileError if the text is neither JSON nor YAML.
    """
    if text.lstrip().startswith("{"):
        try:
            return list(_json_documents(text))
        except (ValueError, RecursionError):
            pass  # The text is YAML in flow style, or has a mistake whose line the YAML reader reports.
    try:
        _check_depth(text, name)
        # This loader is safe: it derives from CSafeLoader, and differs only in that instants remain text.
        return [(None, found) for found in yaml.load_all(text, Loader=_Loader)]
    except yaml.MarkedYAMLError as bad:
        mark = bad.problem_mark or bad.context_mark
        line = mark.line + 1 if mark else 1
        raise BadFileError(f"{name}:{line}: not YAML: {bad.problem or bad.context}") from bad
    except (yaml.YAMLError, RecursionError, ValueError) as bad:
        raise BadFileError(f"{name}:1: not YAML: {bad}") from bad


def _check_depth(text: str, name: str) -> None:
    """Check the depth of a YAML text by its parse events, before its nodes are made.

    The check is needed because the C code that makes YAML nodes is recursive and has no limit of depth.
    Raises BadFileError at a greater depth than DEPTH_MAX, and yaml.YAMLError if the text is not YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise BadFileError(f"{name}:{line}: nested deeper than {DEPTH_MAX} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _json_documents(text: str) -> Iterator[tuple[int, Any]]:
    """Yield JSON documents that are separated by white space or `---`, each with its offset.

    Raises ValueError or RecursionError.
    """
    decoder = json.JSONDecoder()
    at, end = 0, len(text)
    while True:
        while at < end and (text[at].isspace() or text.startswith("---", at)):
            at += 1 if text[at].isspace() else 3
        if at == end:
            return
        begin = at
        document, at = decoder.raw_decode(text, begin)
        yield begin, document


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise BadFileError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as bad:
        raise BadFileError(f"{path}: {bad}") from bad
