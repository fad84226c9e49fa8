"""Counts of attached volumes by node and CSI driver, against the limits of the nodes (CSINode `allocatable.count`).

Volumes are counted as in kube-scheduler: all volumes that the volume claims of the pods on a node have. A volume that
several pods mount is counted once. A claim without a volume counts as one new volume of its class's driver. Volumes
that no claim names, and volumes without a CSI driver, are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_NO_LIMITS: Mapping[str, int] = {}


class Attached(NamedTuple):
    """A volume of a CSI driver, identified by its handle.

    A volume that does not exist yet is identified by its volume claim.
    """

    driver: str
    handle: str


class Attachments:
    """The attached volumes of all nodes. The counts change with each pod that gets a node or leaves its node."""

    def __init__(self) -> None:
        self._limits: dict[str, Mapping[str, int]] = {}
        """For each node, the attach limit of each driver that has such a limit."""
        self._places: dict[str, tuple[str, tuple[Attached, ...]]] = {}
        """For each uid of a pod, its node and its volumes."""
        self._pods: dict[str, Counter[Attached]] = {}
        """For each node, the number of pods that mount each volume."""
        self._used: dict[str, Counter[str]] = {}
        """For each node, the number of attached volumes of each driver."""
        self._rooms: dict[str, dict[str, int]] = {}
        """For each driver, the number of further volumes that each node with a limit can attach.

        The number is negative if a node has more volumes than its limit.
        """
        self.version = 0
        """A number that is increased with every change of `_rooms`."""

    def nodes(self) -> Iterable[str]:
        """Return the nodes whose limits are known."""
        return self._limits

    def place_of(self, uid: str) -> str:
        """Return the node at which the volumes of a pod are counted; "" when they are counted at no node."""
        return self._places.get(uid, ("", ()))[0]

    def limit(self, node: str, limits: Mapping[str, int]) -> None:
        """Set the limits of a node by driver. An empty mapping means that the node has no limits."""
        before = self._limits.pop(node, _NO_LIMITS)
        if limits:
            self._limits[node] = limits
        for driver in before.keys() | limits.keys():
            self._update(node, driver)

    def settle(self, uid: str, node: str, volumes: tuple[Attached, ...]) -> None:
        """Count the volumes of a pod at a node, and stop counting them at the former node."""
        if self._places.get(uid, ("", ())) == (node, volumes):
            return
        self.unsettle(uid)
        if not volumes:
            return
        self._places[uid] = node, volumes
        pods = self._pods.setdefault(node, Counter())
        used = self._used.setdefault(node, Counter())
        for volume in volumes:
            pods[volume] += 1
            if pods[volume] == 1:
                used[volume.driver] += 1
        self._update_all(node, volumes)

    def unsettle(self, uid: str) -> None:
        """Stop counting the volumes of a pod; do nothing for a pod that is not counted."""
        node, volumes = self._places.pop(uid, ("", ()))
        if not volumes:
            return
        pods, used = self._pods[node], self._used[node]
        for volume in volumes:
            pods[volume] -= 1
            if not pods[volume]:
                del pods[volume]
                used[volume.driver] -= 1
        if not pods:
            del self._pods[node], self._used[node]
        self._update_all(node, volumes)

    def full(self, volumes: tuple[Attached, ...]) -> set[str]:
        """Return the nodes that cannot attach all these volumes.

        A volume that is already attached to a node is not counted again for that node.
        """
        found: set[str] = set()
        for driver, count in Counter(volume.driver for volume in volumes).items():
            tight = [node for node, room in self._rooms.get(driver, {}).items() if room < count]
            found.update(node for node in tight if self._lacks(node, driver, volumes))
        return found

    def _lacks(self, node: str, driver: str, volumes: tuple[Attached, ...]) -> bool:
        there = self._pods.get(node, Counter())
        new = sum(one.driver == driver and one not in there for one in volumes)
        return bool(new) and new > self._rooms[driver][node]

    def _update_all(self, node: str, volumes: tuple[Attached, ...]) -> None:
        for driver in {volume.driver for volume in volumes}:
            self._update(node, driver)

    def _update(self, node: str, driver: str) -> None:
        """Recompute how many further volumes of a driver a node can attach."""
        limit = self._limits.get(node, _NO_LIMITS).get(driver)
        rooms = self._rooms.setdefault(driver, {})
        before = rooms.pop(node, None)
        if limit is not None:
            rooms[node] = limit - self._used.get(node, Counter())[driver]
        if not rooms:
            del self._rooms[driver]
        if before != rooms.get(node):
            self.version += 1
