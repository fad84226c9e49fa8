"""Placement rules (interim: its owner replaces this file)."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """Facts of a queue."""

    leaf: bool
    accepting: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The queue."""

    path: str
    create: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Why not."""

    reason: str


def place_application(rules: Any, application: Any, lookup: Any) -> Found | Refused:
    """The queue that is named."""
    path = application.queue or "root.default"
    return Found(path, lookup.find(path) is None)
