"""The saved state of an embedded cluster, as records that are appended to a file.

A reader of the file combines the records into one state. Each record is a JSON object on a separate line:

- `{"format": 1, "directory": PATH}`: the first record of a file; the path of the manifests of the cluster.
- `{"put": OBJECT, "serials": [A, B]}`: an object as it was stored, and the numbers from which new names are made
  (`Serials`).
- `{"gone": [KIND, NAMESPACE, NAME]}`: an object that was removed.
- `{"manifest": [KIND, NAMESPACE, NAME], "digest": TEXT}`: the manifest that was carried out for an object. An empty
  digest means that no file describes the object any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from shim_client.cluster import Change, KubeObject, WatchEvent
from shim_client.embedded.store import key_of

FORMAT = 1
DIGEST_BYTES = 12

Id = tuple[str, str, str]
"""Kind, namespace and name of an object; the namespace is empty for kinds without one."""
Serials = tuple[int, int]
"""The numbers from which unique names are made.

The first number counts created objects, and uids are made from it. The second number counts the pods that controllers
created.
"""


class BadStateError(Exception):
    """A saved state that cannot be read.

    The message names the line and the reason.
    """


@dataclass(slots=True)
class Saved:
    """The state of a cluster when it was last saved."""

    objects: dict[Id, KubeObject] = field(default_factory=dict)
    manifests: dict[Id, str] = field(default_factory=dict)
    """For each object, the digest of the manifest that was last carried out."""
    serials: Serials = (0, 0)
    directory: str = ""
    """The path of the cluster's manifests; empty when nothing was saved."""


def id_of(item: KubeObject) -> Id:
    """Return the id of a stored object."""
    return (item["kind"], *key_of(item))


def digest(item: Mapping[str, Any]) -> str:
    """Return the digest of a manifest. Manifests that differ only in the order of their fields have the same digest."""
    text = json.dumps(item, sort_keys=True, default=str)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=DIGEST_BYTES).hexdigest()


def change_record(event: WatchEvent, serials: Serials) -> dict[str, Any]:
    """Return the record of a change of an object."""
    if event.change is Change.DELETED:
        return {"gone": list(id_of(event.item))}
    return {"put": event.item, "serials": list(serials)}


def manifest_record(of: Id, made: str) -> dict[str, Any]:
    """Return the record of a manifest that was carried out.

    An empty digest means that the manifest is gone.
    """
    return {"manifest": list(of), "digest": made}


def records(saved: Saved) -> Iterator[dict[str, Any]]:
    """Yield the records from which `fold` restores this state."""
    yield {"format": FORMAT, "directory": saved.directory}
    for item in saved.objects.values():
        yield {"put": item, "serials": list(saved.serials)}
    for of, made in saved.manifests.items():
        yield manifest_record(of, made)


def line(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line of the file."""
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def fold(lines: Iterable[bytes]) -> Saved:
    """Return the state that the lines of a file describe.

    Raises BadStateError if a line cannot be read. A last line without a line end is ignored, because the process was
    killed while it wrote this line. The change in that line did not happen.
    """
    saved = Saved()
    for number, text in enumerate(lines, 1):
        if not text.endswith(b"\n"):
            break
        try:
            _take(json.loads(text), saved, number)
        except KeyError as missing:
            raise BadStateError(f"line {number}: {missing} is missing") from missing
        except (ValueError, TypeError, AttributeError, RecursionError) as bad:
            raise BadStateError(f"line {number}: {bad}") from bad
    return saved


def _take(record: Any, saved: Saved, number: int) -> None:  # noqa: ANN401 - it comes from a file
    if number == 1:
        if record["format"] != FORMAT:
            raise BadStateError(f"line 1: format {record['format']!r:.40} is not {FORMAT}")
        saved.directory = str(record.get("directory", ""))
    elif "put" in record:
        item = record["put"]
        saved.objects[id_of(item)] = item
        first, second = record["serials"]
        saved.serials = (int(first), int(second))
    elif "gone" in record:
        saved.objects.pop(_id(record["gone"]), None)
    elif record["digest"]:
        saved.manifests[_id(record["manifest"])] = str(record["digest"])
    else:
        saved.manifests.pop(_id(record["manifest"]), None)


def _id(parts: list[str]) -> Id:
    kind, namespace, name = map(str, parts)
    return kind, namespace, name
