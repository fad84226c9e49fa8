"""Samples (the usage of queues) and pictures (lists of pods).

A copy of the core writes samples and pictures, and the writing process reads them.
"""

from typing import Any, Final, NamedTuple

PODS: Final = ""
"""The resource type under which pods are counted: running pods as usage, waiting pods as waiting."""


class Sample(NamedTuple):
    """The usage of all queues of a partition.

    A row has a queue, a resource type, and their values in the order of `schema.MEASURES`.
    """

    partition: str
    at_ms: int
    rows: list[tuple[str, str, tuple[int, ...]]]


class Pod(NamedTuple):
    """A pod in a picture. A waiting ask has no node, and its ``code`` says why it waits."""

    rm_id: str
    key: str
    application_id: str
    queue: str
    user: str
    node_id: str
    resource: tuple[tuple[str, int], ...]
    priority: int
    created_ms: int
    placed_ms: int
    code: str
    tags: tuple[bytes, ...]


class Picture(NamedTuple):
    """All pods of a partition except foreign pods. ``number`` is the number of the last item that was queued before the picture."""

    partition: str
    number: int
    pods: list[tuple[Any, ...]]
