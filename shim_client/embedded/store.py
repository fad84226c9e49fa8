"""A store of objects with resource versions, and with the history that watches read.

Objects are never changed in place. Each change stores a new mapping, so that a reader's copy of an object stays as it
was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from shim_client.cluster import Change, GoneError, KubeObject, Listing, WatchEvent

HISTORY_MAX = 20_000
"""The minimum number of changes of each kind that are kept.

At most twice as many changes are kept. A watch from an older version gets HTTP 410 (GoneError).
"""

Key = tuple[str, str]
"""Namespace and name of an object; the namespace is empty for kinds without one."""


def key_of(item: KubeObject) -> Key:
    """Return the object's namespace and name."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


class Store:
    """All objects by kind.

    The attribute `version` is the resource version of the last change. Each function in `noticed` is called at once for
    every change.
    """

    def __init__(self, history_max: int = HISTORY_MAX) -> None:
        self.version = 0
        self._history_max = history_max
        self._objects: dict[str, dict[Key, KubeObject]] = {}
        self._history: dict[str, list[WatchEvent]] = {}
        self._forgotten: dict[str, int] = {}
        """For each kind, the version up to which its changes were dropped from the history."""
        self.noticed: list[Callable[[WatchEvent], None]] = []

    def get(self, kind: str, key: Key) -> KubeObject | None:
        """Return one object; None when it does not exist."""
        return self._objects.get(kind, {}).get(key)

    def all(self, kind: str) -> Iterator[KubeObject]:
        """Yield the objects of a kind, oldest first."""
        return iter(list(self._objects.get(kind, {}).values()))

    def everything(self) -> Iterator[KubeObject]:
        """Yield the objects of all kinds."""
        for kind in list(self._objects):
            yield from self.all(kind)

    def listing(self, kind: str) -> Listing:
        """Return all objects of a kind with the version to watch from."""
        return Listing(kind, list(self.all(kind)), self.version)

    def put(self, item: KubeObject) -> KubeObject:
        """Store a new or changed object and return it with its version."""
        kind, key = item["kind"], key_of(item)
        self.version += 1
        metadata = {**item["metadata"], "resourceVersion": str(self.version)}
        stored = {**item, "metadata": metadata}
        of_kind = self._objects.setdefault(kind, {})
        change = Change.MODIFIED if key in of_kind else Change.ADDED
        of_kind[key] = stored
        self._remember(WatchEvent(change, kind, stored, self.version))
        return stored

    def remove(self, kind: str, key: Key) -> None:
        """Remove an object at once; KeyError when it does not exist."""
        item = self._objects[kind].pop(key)
        self.version += 1
        self._remember(WatchEvent(Change.DELETED, kind, item, self.version))

    def since(self, kind: str, version: int) -> list[WatchEvent]:
        """Return the changes after a version.

        Raises GoneError when some of these changes are no longer kept.
        """
        if version < self._forgotten.get(kind, 0):
            raise GoneError(f"resource version {version} of {kind} is too old")
        history = self._history.get(kind, [])
        return history[bisect_right(history, version, key=lambda event: event.version) :]

    def _remember(self, event: WatchEvent) -> None:
        history = self._history.setdefault(event.kind, [])
        history.append(event)
        if len(history) >= 2 * self._history_max:
            self._forgotten[event.kind] = history[-self._history_max - 1].version
            del history[: -self._history_max]
        for notice in self.noticed:
            notice(event)
