"""Events on Kubernetes objects: equal events are counted in one Event object, and similar events are combined.

Recently written events are remembered, up to a limit. If an event was forgotten because of the limit or a restart, an
equal event becomes a new object.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shim_client.cluster import MissingError, ObjectRef, RecordEvent
from shim_client.kubernetes.api import STRATEGIC, Api
from shim_client.kubernetes.kinds import CORE, EVENTS, PLACES

REMEMBERED_MAX = 4096
"""Maximum number of events that are remembered for counting."""
SIMILAR_MAX = 10
"""Maximum number of different messages with one reason on one object that get separate events."""
COMPONENT = "evenhand"
_COMBINED = "(combined from similar events): "
_HOME = "default"
"""Namespace of the events on objects that have no namespace."""
_NAME_LENGTH_MAX = 220

Clock = Callable[[], int]
Key = tuple[ObjectRef, str, str]


@dataclass(slots=True)
class _Kept:
    """An event object that was written."""

    path: str
    count: int


class EventBook:
    """A writer of events that counts equal events."""

    def __init__(self, api: Api, now_ms: Clock) -> None:
        self._api = api
        self._now_ms = now_ms
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._messages: OrderedDict[tuple[ObjectRef, str], set[str]] = OrderedDict()
        self._serial = 0

    async def record(self, order: RecordEvent) -> None:
        """Write an event, or increase its count. Raises ClusterError if the request fails."""
        message = order.message
        if self._is_one_too_many(order):
            message = _COMBINED + message
        combined = message is not order.message
        key = (order.about, order.reason, _COMBINED if combined else message)
        kept = self._kept.get(key)
        if kept is not None and await self._counted(kept, message):
            self._kept.move_to_end(key)
            return
        self._kept[key] = _Kept(await self._created(order, message), 1)
        _forget_oldest(self._kept)

    def _is_one_too_many(self, order: RecordEvent) -> bool:
        messages = self._messages.setdefault((order.about, order.reason), set())
        self._messages.move_to_end((order.about, order.reason))
        _forget_oldest(self._messages)
        if order.message in messages:
            return False
        if len(messages) >= SIMILAR_MAX:
            return True
        messages.add(order.message)
        return False

    async def _counted(self, kept: _Kept, message: str) -> bool:
        """Increase the count of an event object; return False when that object was deleted.

        The API server deletes events after about an hour.
        """
        change = {
            "count": kept.count + 1,
            "message": message,
            "lastTimestamp": stamp(self._now_ms()),
        }
        try:
            await self._api.patch(kept.path, change, STRATEGIC)
        except MissingError:
            return False
        kept.count += 1
        return True

    async def _created(self, order: RecordEvent, message: str) -> str:
        now_ms = self._now_ms()
        self._serial += 1
        namespace = order.about.namespace or _HOME
        name = f"{order.about.name[:_NAME_LENGTH_MAX]}.{now_ms:x}{self._serial:06x}"
        path = EVENTS.within(namespace)
        await self._api.post(path, _event(order, message, name, stamp(now_ms)))
        return f"{path}/{name}"


def stamp(now_ms: int) -> str:
    """Return an instant as text in the form of the API server."""
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _event(order: RecordEvent, message: str, name: str, at: str) -> dict[str, Any]:
    about = order.about
    root = PLACES[about.kind].root
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about.namespace or _HOME},
        "involvedObject": {
            "apiVersion": "v1" if root == CORE else root.removeprefix("/apis/"),
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
        "reason": order.reason,
        "message": message,
        "type": "Warning" if order.warning else "Normal",
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
    }


def _forget_oldest(remembered: OrderedDict[Any, Any]) -> None:
    if len(remembered) > REMEMBERED_MAX:
        remembered.popitem(last=False)
