"""The delay of decisions until a follower has them, as `evenhand serve --follower-acknowledges` requests (design 7.8).

The decisions of a slice (`server.rpc.pump`) are sent when a follower has acknowledged the slice. If a follower takes too long,
slices no longer wait for it, until it has caught up again. A slow follower thus delays decisions once and not at every slice.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from server.replication.feed import Feed, Follower
from server.rpc.acknowledging import Acknowledgements
from server.rpc.level import Gauge


class Acknowledged:
    """The wait of decisions for a follower. The pump awaits `before_leaving` before it sends the decisions of a slice."""

    def __init__(self, feed: Feed, acknowledgements: Acknowledgements, seconds: float) -> None:
        """Make the wait, which takes at most ``seconds`` for each slice.

        Followers are asked to acknowledge until `close` is called.
        """
        self._feed = feed
        self._acknowledgements = acknowledgements
        self._seconds = seconds
        self._decided = feed.decided
        self._before = 0
        self.slices = dict.fromkeys(("acknowledged", "late", "alone"), 0)
        """The number of slices with decisions, by the outcome of the wait.

        `acknowledged`: a follower acknowledged the slice. `late`: no follower acknowledged the slice in time. `alone`: no
        follower had all input before the slice, so the slice did not wait.
        """
        self._asking = ExitStack()
        self._asking.enter_context(acknowledgements.asking())

    def close(self) -> None:
        """Stop asking followers for acknowledgements."""
        self._asking.close()

    async def before_leaving(self) -> None:
        """Wait until a follower that had all input before this slice has acknowledged the slice, or until the time is up.

        A slice without decisions does not wait.
        """
        position, before = self._feed.position, self._before
        self._before = position
        if self._feed.decided == self._decided:
            return
        self._decided = self._feed.decided

        def level() -> Sequence[Follower]:
            followers = self._feed.followers
            return [one for one in followers if one.process and one.acknowledged >= before]

        if not level():
            self.slices["alone"] += 1
            return
        found = await self._acknowledgements.reached(level, position, self._seconds)
        self.slices["late" if found is None else "acknowledged"] += 1

    def gauges(self) -> Iterator[Gauge]:
        """Yield the number of slices with decisions, by the outcome of the wait for a follower."""
        for outcome, count in self.slices.items():
            yield "follower_waits", count, {"outcome": outcome}
