"""An API server in memory for two shims: objects, watches, leases, and nodes that run and end the pods bound to them.

Each change is made at one instant, and is a line of the journal: `ask`, `placed`, `evict` and `gone` of pods, with uids
as keys; `bind` and `end` for each request that binds or ends a pod; `mark` for each decision that a shim writes on a
victim; `write` for each request that may change something; `lease` for each lease that is written.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any, Final

from shim_client.kubernetes.kinds import PLACES
from shim_client.quantity import milli_units
from tests.faults.journal import Journal
from tests.faults.kubernetes.truth import PROBE, RELEASED_FOR
from tests.kubernetes.fake_api import Answer, Asked, status
from tests.kubernetes.kube import Object

RUNS_FOR: Final = "evenhand.test/runs-for"
KEPT: Final = 5_000
"""The least number of past events that a watch may begin with; an older version is answered with 410."""
QUIET_S: Final = 30.0
"""Seconds without an event after which a watch sends a bookmark."""
STARTS_S: Final = (0.02, 0.2)
ENDS_S: Final = (0.1, 1.0)
"""The shortest and longest time, in seconds, that a pod takes to start or to end."""
SERVED: Final = {place.plural for kind, place in PLACES.items() if kind != "PodGroup"} | {"leases"}
Key = tuple[str, str, str]
"""The plural of a kind, the namespace and the name."""


class ApiServer:
    """The state of a cluster, changed by the requests of shims and by the methods for its users."""

    def __init__(self, journal: Journal, dice: random.Random) -> None:
        self.objects: dict[Key, Object] = {}
        self.epochs: dict[str, int] = {}
        """The epoch of the last term of each shim, by the name of its instance."""
        self._journal, self._dice = journal, dice
        self._version = 0
        self._is_over = False
        self._made = 0
        self._events: list[tuple[str, str, bytes]] = []
        """The last events, one for each version: the plural of the kind, the namespace, and the line of a watch."""
        self._changed = asyncio.Event()

    @property
    def holder(self) -> str:
        """The instance that holds the lease; empty while none does."""
        found = next((one for key, one in self.objects.items() if key[0] == "leases"), None)
        return "" if found is None else _instance(found)

    def end(self) -> None:
        """End all watches."""
        self._is_over = True
        self._changed.set()

    def pods(self) -> list[Object]:
        """Return all pods."""
        return [item for key, item in self.objects.items() if key[0] == "pods"]

    def answer(self, by: str, asked: Asked) -> Answer:
        """Return the answer to a request of a shim."""
        key, sub = _parsed(asked.path)
        if key[0] == "events":
            return Answer(201, asked.body)
        if key[0] not in SERVED:
            return status(404, "not served")
        if asked.method == "GET":
            return self._read(key, asked)
        if key[0] != "leases":
            self._journal.write(
                "write",
                by=by,
                epoch=self.epochs.get(by, 0),
                holder=self.holder,
                what=f"{asked.method} {key[0]} {sub}".strip(),
                name=key[2],
            )
        return self._write(by, key, sub, asked)

    def _read(self, key: Key, asked: Asked) -> Answer:
        plural, namespace, name = key
        if name:
            found = self.objects.get(key)
            return Answer(body=found) if found else status(404, "not found")
        if asked.query.get("watch"):
            since = int(asked.query["resourceVersion"])
            if since < self._version - len(self._events):
                return status(410, "too old")
            return Answer(flow=self._watch(plural, namespace, since))
        items = [one for there, one in self.objects.items() if _is_in(there, plural, namespace)]
        return Answer(body={"items": items, "metadata": {"resourceVersion": str(self._version)}})

    async def _watch(self, plural: str, namespace: str, since: int) -> AsyncIterator[bytes]:
        while not self._is_over:
            new = self._events[len(self._events) - (self._version - since) :]
            since = self._version
            for there, within, line in new:
                if there == plural and namespace in {"", within}:
                    yield line
            try:
                async with asyncio.timeout(QUIET_S):
                    while self._version == since and not self._is_over:
                        await self._changed.wait()
            except TimeoutError:
                bookmark = {"kind": "", "metadata": {"resourceVersion": str(since)}}
                yield _line("BOOKMARK", bookmark)

    def _write(self, by: str, key: Key, sub: str, asked: Asked) -> Answer:
        if asked.method == "POST" and not sub:
            return self.create(key[0], asked.body)
        found = self.objects.get(key)
        if found is None:
            return status(404, "not found")
        match asked.method, sub:
            case "POST", "binding":
                return self._bind(by, found, asked.body)
            case "POST", "eviction":
                return self._end(by, found, asked.body.get("deleteOptions") or {})
            case "DELETE", _:
                return self._end(by, found, asked.body or {})
            case "PUT", _:
                return self._replace(key, found, asked.body)
            case _:
                return self._patch(key, found, asked.body)

    def create(self, plural: str, item: Object) -> Answer:
        """Create an object."""
        metadata = item["metadata"]
        key = (plural, metadata.get("namespace", ""), metadata["name"])
        if key in self.objects:
            return status(409, "exists")
        self._made += 1
        stamp = {"uid": f"uid-{self._made}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        made = {**item, "metadata": {**metadata, **stamp}}
        if plural == "pods":
            made["status"] = {"phase": "Pending"}
            queue = metadata["labels"].get("queue", "").removeprefix("root.")
            facts = {"name": metadata["name"], "queue": queue, "size": _size(made)}
            self._journal.write("ask", key=made["metadata"]["uid"], impossible=False, **facts)
        self._put(key, made, "ADDED")
        return Answer(201, made)

    def _put(self, key: Key, item: Object, change: str = "MODIFIED") -> None:
        """Store an object with the next version, and tell the watches."""
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self.objects[key] = item
        if change == "DELETED":
            del self.objects[key]
        if key[0] == "leases":
            holder, epoch = _instance(item), item["spec"].get("leaseTransitions", 0)
            if holder:
                self.epochs[holder] = epoch
            self._journal.write("lease", holder=item["spec"]["holderIdentity"], epoch=epoch)
        self._events.append((key[0], key[1], _line(change, item)))
        if len(self._events) > 2 * KEPT:
            del self._events[:KEPT]
        self._changed.set()
        self._changed.clear()

    def _replace(self, key: Key, found: Object, item: Object) -> Answer:
        if item["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
            return status(409, "changed meanwhile")
        self._put(key, {**item, "metadata": {**found["metadata"], **item["metadata"]}})
        return Answer(body=self.objects[key])

    def _patch(self, key: Key, found: Object, change: Object) -> Answer:
        wanted = change.get("metadata", {})
        for name in ("uid", "resourceVersion"):
            if wanted.get(name, found["metadata"][name]) != found["metadata"][name]:
                return status(409, f"another {name}")
        before = _mark(found)
        item = _merged(found, change)
        self._put(key, item)
        if _mark(item) != before:
            self._journal.write("mark", key=found["metadata"]["uid"], mark=_mark(item))
        return Answer(body=item)

    def patch(self, key: Key, change: Object) -> None:
        """Merge a change into an object, as a user does."""
        self._patch(key, self.objects[key], change)

    def _bind(self, by: str, pod: Object, body: Object) -> Answer:
        metadata, node = pod["metadata"], body["target"]["name"]
        uid = body["metadata"].get("uid") or metadata["uid"]
        taken = bool(pod["spec"].get("nodeName") or metadata.get("deletionTimestamp"))
        accepted = uid == metadata["uid"] and not taken
        facts = {"key": uid, "name": metadata["name"], "node": node}
        self._journal.write("bind", by=by, accepted=accepted, **facts)
        if not accepted:
            return status(409, "already bound, or another pod")
        pod["spec"]["nodeName"] = node
        self._journal.write("placed", key=uid, node=node)
        self._put(_key(pod), pod)
        self._later(self._dice.uniform(*STARTS_S), self._start, pod)
        return Answer(201, status(201, "bound").body)

    def _end(self, by: str, pod: Object, options: Object) -> Answer:
        metadata = pod["metadata"]
        uid = (options.get("preconditions") or {}).get("uid", metadata["uid"])
        accepted = uid == metadata["uid"]
        self._journal.write("end", by=by, key=uid, name=metadata["name"], accepted=accepted)
        if not accepted:
            return status(409, "another pod")
        if not metadata.get("deletionTimestamp"):
            decision, freed_for, freed_on = (_mark(pod) or "//").split("/")
            facts = {"decision": decision, "freed_for": freed_for, "freed_on": freed_on}
            if pod["status"]["phase"] != "Succeeded":
                self._journal.write("evict", key=uid, by=by, **facts)
            self.delete(pod)
        return Answer(body=pod)

    def delete(self, pod: Object) -> None:
        """Delete a pod, as its user does: at once when it waits, and after a while when it runs."""
        if pod["metadata"].get("deletionTimestamp"):
            return
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
        self._put(_key(pod), pod)
        seconds = self._dice.uniform(*ENDS_S) if pod["spec"].get("nodeName") else 0.0
        self._later(seconds, self._remove, pod)

    def _later(self, seconds: float, deed: Any, pod: Object) -> None:
        """Do something with a pod after some seconds, if the pod is still there."""
        key, uid = _key(pod), pod["metadata"]["uid"]

        def do() -> None:
            there = self.objects.get(key)
            if there is not None and there["metadata"]["uid"] == uid:
                deed(there)

        asyncio.get_running_loop().call_later(seconds, do)

    def _start(self, pod: Object) -> None:
        pod["status"] = {**pod["status"], "phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
        self._put(_key(pod), pod)
        runs_ms = int(pod["metadata"].get("annotations", {}).get(RUNS_FOR, "0ms")[:-2])
        if runs_ms:
            self._later(runs_ms / 1000, self._succeed, pod)

    def _succeed(self, pod: Object) -> None:
        if pod["metadata"].get("deletionTimestamp"):
            return
        self._journal.write("gone", key=pod["metadata"]["uid"])
        pod["status"] = {**pod["status"], "phase": "Succeeded"}
        self._put(_key(pod), pod)
        self._later(0.5, self._remove, pod)

    def _remove(self, pod: Object) -> None:
        if pod["status"]["phase"] != "Succeeded":
            self._journal.write("gone", key=pod["metadata"]["uid"])
        self._put(_key(pod), pod, "DELETED")


def _parsed(path: str) -> tuple[Key, str]:
    """Return which object or kind a path names, and its subresource."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, sub = [*rest, "", ""][:3]
    return (plural, namespace, name), sub


def _key(pod: Object) -> Key:
    return "pods", pod["metadata"]["namespace"], pod["metadata"]["name"]


def _is_in(key: Key, plural: str, namespace: str) -> bool:
    return key[0] == plural and namespace in {"", key[1]}


def _line(change: str, item: Object) -> bytes:
    return json.dumps({"type": change, "object": item}).encode() + b"\n"


def _instance(lease: Object) -> str:
    """Return the name of the shim that holds a lease, without the random part."""
    holder: str = lease["spec"].get("holderIdentity") or ""
    return holder.rpartition("_")[0]


def _mark(pod: Object) -> str:
    """Return the decision, the preemptor and the node that a shim wrote on a victim; empty when there is none."""
    mark: str = (pod["metadata"].get("annotations") or {}).get(RELEASED_FOR) or ""
    return mark


def _size(pod: Object) -> dict[str, int]:
    """Return the millicores and the probes that a pod requests."""
    [container] = pod["spec"]["containers"]
    requests = container["resources"]["requests"]
    probes = int(requests.get(PROBE, 0))
    return {"vcore": milli_units(requests.get("cpu", "0")), **({"probe": probes} if probes else {})}


def _merged(item: Any, change: Any) -> Any:
    """Return an object with a merge patch; conditions are merged by their type."""
    if not isinstance(change, dict) or not isinstance(item, dict):
        return change
    found = dict(item)
    for name, value in change.items():
        if value is None:
            found.pop(name, None)
        elif name == "conditions":
            kept = {one["type"]: one for one in (*found.get(name, ()), *value)}
            found[name] = list(kept.values())
        else:
            found[name] = _merged(found.get(name, {}), value)
    return found
