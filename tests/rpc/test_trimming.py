"""The moments at which memory is returned to the operating system."""

from collections.abc import Callable

from server.model.decisions import Decisions
from server.rpc.trimming import TRIM_S, Trimming, give_back


class Later:
    """A timer that keeps the planned calls."""

    def __init__(self) -> None:
        self.planned: list[Callable[[], None]] = []

    def __call__(self, seconds: float, then: Callable[[], None]) -> "Later":
        assert seconds == TRIM_S
        self.planned.append(then)
        return self

    def cancel(self) -> None:
        self.planned.clear()


def test_much_work_is_followed_by_one_trim() -> None:
    later, trims = Later(), [0]

    def trim() -> None:
        trims[0] += 1

    trimming = Trimming(later, trim)
    trimming.sliced(0, 0.0, 1)
    trimming.decided(Decisions([]), 1)
    trimming.idle()
    assert not later.planned, "nothing was done"
    trimming.call_ended()
    trimming.call_ended()
    trimming.sliced(5, 0.0, 1)
    (first,) = later.planned
    first()
    assert trims == [1]
    trimming.sliced(5, 0.0, 2)
    assert len(later.planned) == 2
    trimming.close()
    assert later.planned == []


def test_it_can_be_done_here() -> None:
    give_back()
