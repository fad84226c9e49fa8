"""The queue of the history never makes the core wait: what does not fit is dropped, counted and named."""

from server.core.core import Core
from server.history.tap import OBJECT_BYTES, Kind, Lost, Queue
from server.model.events import ManagerRegistered
from tests.history.frames import Told


def drained(queue: Queue) -> list[tuple[Kind, int]]:
    found = []
    while (item := queue.take()) is not None:
        found.append((item.kind, len(item.values)))
        queue.sent(len(item.values))
    return found


def test_a_full_queue_drops_and_names_what_is_missing() -> None:
    queue = Queue(most=10)
    queue.picture_wanted = False
    queue.put(Kind.EVENTS, 1, range(8))
    queue.put(Kind.EVENTS, 2, range(5))
    queue.why = "disk full"
    queue.put(Kind.DECISIONS, 3, range(4))
    assert (queue.lost, queue.gaps) == (9, 1)
    assert drained(queue) == [(Kind.EVENTS, 8)]
    queue.put(Kind.EVENTS, 4, range(2))
    gap = queue.take()
    assert gap is not None
    queue.sent(1)
    assert (gap.kind, gap.values) == (Kind.GAP, [Lost(2, 3, 9, "disk full")])
    assert drained(queue) == [(Kind.EVENTS, 2)]
    assert queue.picture_wanted
    queue.put(Kind.EVENTS, 5, range(8))
    queue.put(Kind.EVENTS, 6, range(8))
    assert queue.gaps == 2


def test_an_item_that_was_taken_and_not_sent_still_waits() -> None:
    queue = Queue(most=10)
    queue.put(Kind.EVENTS, 1, range(8))
    assert queue.take() is not None
    queue.put(Kind.EVENTS, 2, range(3))
    assert queue.lost == 3
    queue.sent(8)
    queue.put(Kind.EVENTS, 3, range(3))
    assert queue.lost == 3


def test_an_item_larger_than_the_queue_is_taken_when_nothing_waits() -> None:
    queue = Queue(most=10)
    queue.put(Kind.EVENTS, 1, range(50))
    assert queue.lost == 0
    assert drained(queue) == [(Kind.EVENTS, 50)]


def test_samples_and_pictures_count_by_their_bytes() -> None:
    """A picture of all pods is one value, and may need as much memory as the rest of the queue."""
    queue = Queue(most=10)
    queue.put(Kind.SAMPLE, 1, [b"small"])
    queue.put(Kind.PICTURE, 2, [bytes(8 * OBJECT_BYTES)])
    queue.put(Kind.EVENTS, 3, range(1))
    queue.put(Kind.PICTURE, 4, [b""])
    assert (queue.lost, queue.gaps) == (2, 1)
    sizes = []
    while (item := queue.take()) is not None:
        sizes.append(item.size)
        queue.sent(item.size)
    assert sizes == [1, 9]
    queue.put(Kind.EVENTS, 5, range(9))
    assert queue.lost == 2


def test_a_closed_queue_keeps_nothing() -> None:
    queue = Queue(most=10)
    queue.put(Kind.EVENTS, 1, range(8))
    queue.close()
    queue.put(Kind.EVENTS, 2, range(3))
    queue.put(Kind.EVENTS, 3, range(3))
    assert drained(queue) == []
    assert (queue.lost, queue.gaps) == (6, 1)


def test_the_configuration_is_told_again_after_a_reset() -> None:
    one = Told(Core())
    one.take(ManagerRegistered("rm"), now=0)
    one.take(now=1)
    assert one.queue.number == 3
    one.queue.reset()
    one.take(now=2)
    assert one.queue.number == 4
