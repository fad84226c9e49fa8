"""The journal of a shim: the true state of pods, one line per change; like an API server, it survives every process."""

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read(path: Path) -> Iterator[Line]:
    """Yield the complete lines of a journal; the last line may be incomplete."""
    if path.exists():
        for written in path.read_bytes().splitlines(keepends=True):
            if written.endswith(b"\n"):
                yield json.loads(written)


class Journal:
    """A journal that is open for appending. A written line stays valid when its writer is killed."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind: str, **facts: Any) -> Line:
        """Append one line, `at` in milliseconds of the machine's monotonic clock."""
        line = {"at": time.monotonic_ns() // 1_000_000, "kind": kind, **facts}
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")
        return line


@dataclass
class Pod:
    """A pod in the true state; `decision` evicts it, and `freed_for` is the ask for which its capacity is freed."""

    key: str
    queue: str
    size: dict[str, int]
    impossible: bool
    node: str = ""
    decision: str = ""
    freed_for: str = ""
    freed_on: str = ""


@dataclass
class Truth:
    """All pods that exist."""

    pods: dict[str, Pod] = field(default_factory=dict)
    made: int = 0

    def carry(self, line: Line) -> None:
        """Apply one line to the state."""
        key = line.get("key", "")
        match line["kind"]:
            case "ask":
                self.made += 1
                self.pods[key] = Pod(key, line["queue"], line["size"], line["impossible"])
            case "placed":
                self.pods[key].node = line["node"]
            case "evict":
                pod = self.pods[key]
                pod.decision, pod.freed_for = line["decision"], line["freed_for"]
                pod.freed_on = line["freed_on"]
            case "withdrawn":
                self.pods[key].decision = ""
            case "gone":
                del self.pods[key]


def truth_of(lines: Iterable[Line]) -> Truth:
    """Return the state after these lines."""
    truth = Truth()
    for line in lines:
        truth.carry(line)
    return truth
