"""The audit log of the API server: every request of the shim that binds or ends a pod, refused ones included."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.faults.evidence import Evidence
from tests.faults.journal import Line

ACCOUNT: Final = "system:serviceaccount:evenhand:evenhand-shim"
POLICY: Final = f"""\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Request
    users: ["{ACCOUNT}"]
    verbs: [create, delete]
    resources: [{{group: "", resources: [pods, pods/binding, pods/eviction]}}]
  - level: None
"""
ACCEPTED: Final = range(200, 300)


def flags(folder: Path) -> tuple[str, ...]:
    """Write the policy; return the flags by which an API server keeps its audit log in a folder."""
    policy = folder / "audit-policy.yaml"
    policy.write_text(POLICY)
    return (f"--audit-policy-file={policy}", f"--audit-log-path={log_in(folder)}")


def log_in(folder: Path) -> Path:
    """Return the path of the audit log in a folder."""
    return folder / "audit.jsonl"


def requests(text: str, wall_ahead_ms: int) -> Iterator[Line]:
    """Yield a journal line for each request; `wall_ahead_ms` is the wall clock minus the monotonic clock."""
    for written in text.splitlines():
        event = json.loads(written)
        given = event.get("requestObject") or {}
        about = event["objectRef"]
        is_binding = about.get("subresource") == "binding"
        yield {
            "at": _milliseconds(event["requestReceivedTimestamp"]) - wall_ahead_ms,
            "kind": "bind" if is_binding else "end",
            "key": given.get("metadata", {}).get("uid", "") if is_binding else _uid(given),
            "name": about["name"],
            "node": given.get("target", {}).get("name", ""),
            "accepted": event["responseStatus"]["code"] in ACCEPTED,
        }


def _uid(given: dict[str, Any]) -> str:
    """Return the uid of the pod that a deletion or an eviction names."""
    options = given.get("deleteOptions") or given
    uid: str = (options.get("preconditions") or {}).get("uid", "")
    return uid


def _milliseconds(stamp: str) -> int:
    return int(datetime.fromisoformat(stamp).timestamp() * 1000)


def merged(lines: Iterable[Line], asked: Iterable[Line], marks: Mapping[str, str]) -> list[Line]:
    """Return the journal with the requests; an accepted request that ends a running pod is also an `evict` line.

    `marks` has the annotation that the shim had written on a pod before it ended the pod.
    """
    alive: set[str] = set()
    whole: list[Line] = []
    for line in sorted([*lines, *asked], key=lambda one: one["at"]):
        whole.append(line)
        key = line.get("key", "")
        if line["kind"] == "ask":
            alive.add(key)
        elif line["kind"] == "gone":
            alive.discard(key)
        elif line["kind"] == "end" and line["accepted"] and key in alive:
            whole.append(_evicted(line, marks.get(key, "//")))
    return whole


def _evicted(line: Line, mark: str) -> Line:
    decision, freed_for, freed_on = mark.split("/")
    facts = {"decision": decision, "freed_for": freed_for, "freed_on": freed_on}
    return {"at": line["at"], "kind": "evict", "key": line["key"], **facts}


def with_sessions(lines: Iterable[Line], run: Evidence) -> Iterator[Line]:
    """Yield the journal with a `session` line before each eviction, naming the first core run that decided the eviction.

    A shim that was stopped can carry out a decision of a core that has been killed since.
    """
    begun: dict[str, int] = {}
    for part, at in zip(run.log, run.begun_ms, strict=False):
        for one in part.decided:
            begun.setdefault(one.decision, at)
    for line in lines:
        if line["kind"] == "evict":
            yield {"at": begun.get(line["decision"], line["at"]), "kind": "session"}
        yield line
