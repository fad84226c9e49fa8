"""The reading of the manifests of a command from files, directories and the standard input.

Errors name the place of the mistake.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from evenhand_cli import terminal
from evenhand_cli.faults import Fault
from evenhand_cli.files import FILE_BYTES_MAX, read_text
from shim_client.embedded.loading import (
    QUEUES_FILE,
    BadFileError,
    FileObject,
    manifest_files,
    read_manifests,
)

WHERE = "argument FILE"
STANDARD_INPUT = Path("-")


def read(paths: Iterable[Path]) -> list[FileObject]:
    """Return the objects of files and directories, beginning with the kinds on which other kinds depend.

    Raises Fault if a file cannot be used, or if there are no objects.

    Objects of kinds that an embedded cluster does not keep are left out. A message on standard error names the kinds
    that were left out.
    """
    try:
        found = read_manifests(text for path in paths for text in _texts(path))
    except BadFileError as error:
        raise Fault(
            str(error), where=WHERE, advice="correct that line, or name another file"
        ) from error
    if found.ignored:
        left_out = ", ".join(f"{count} {kind}" for kind, count in sorted(found.ignored.items()))
        terminal.say(f"left out, an embedded cluster has no use for it: {left_out}")
    if not found.objects:
        raise Fault(
            "there are no objects for an embedded cluster",
            where=WHERE,
            advice="name files or directories with Kubernetes YAML or JSON",
        )
    return found.objects


def as_json(one: FileObject) -> str:
    """Return an object as JSON. Raises Fault for YAML that JSON cannot express."""
    try:
        return json.dumps(one.item, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as bad:
        ref = one.ref()
        raise Fault(
            f"{ref.kind} {ref.name} is no JSON: {bad}",
            where=one.place,
            advice="write numbers, texts, lists and maps only",
        ) from bad


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of a file, or of each manifest in a directory, or of the standard input.

    Raises Fault if a file cannot be read.
    """
    if path == STANDARD_INPUT:
        yield "standard input", _standard_input()
    elif path.is_dir():
        for file in manifest_files(path):
            if file != path / QUEUES_FILE:
                yield str(file), read_text(file, WHERE)
    else:
        yield str(path), read_text(path, WHERE)


def _standard_input() -> str:
    text = sys.stdin.read(FILE_BYTES_MAX + 1)
    if len(text) > FILE_BYTES_MAX:
        raise Fault(
            f"the input is larger than {FILE_BYTES_MAX:,} characters",
            where=WHERE,
            advice="give fewer objects at once",
        )
    return text


def parsed(text: str) -> dict[str, Any]:
    """Return an object as plain values, given the JSON text of the object in an answer of the cluster."""
    found: dict[str, Any] = json.loads(text)
    return found
