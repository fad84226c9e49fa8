"""The forms of samples and pictures of a core. They are made in a copy of the core's process, and read in the writing process."""

from typing import Any, Final, NamedTuple

PODS: Final = ""
"""The resource type of the counts of pods: running ones as usage, waiting ones as waiting."""


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
    """All pods of a partition except foreign ones. ``number`` is the number of the last item that was queued before."""

    partition: str
    number: int
    pods: list[tuple[Any, ...]]
