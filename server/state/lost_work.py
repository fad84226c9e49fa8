"""The work that preemption destroyed: for each victim, the time for which it had run when its eviction was ordered, multiplied by its resources.

One table has the sums since the start of the core by policy, preemptor's queue and victim's queue. A second table also
distinguishes the user and the application of the victim. A victim is added as soon as it has ended, for any reason. A victim
that could not be released is not added. The time of a victim begins when its pod started or, if no start was reported, at
placement. The time ends with the order to evict the victim. The time after that order is left out, because the victim may have
saved its work then.

Amounts are whole numbers: 1 core-second is 1,000 millicores times 1,000 ms. The number of lines is limited: removed queues, and
queues for which a table has no free line, share the line `OTHERS`. Once half of a table is used, applications that have no line
yet share a line, too.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from server.model.records import Amounts, Lost

LINES_MAX: Final = 4_096
"""The largest number of lines of the table, apart from the lines of `OTHERS`, of which there is one for each policy."""
SOFT: Final = "soft"
"""The delivery by which a victim is only marked, so that its eviction can be withdrawn (J11)."""
MINUTE_MS: Final = 60_000
MINUTES_MAX: Final = 16_384
"""The largest number of lines in the sums by minute. If there are more lines, the oldest minute is dropped."""
NONE: Final[tuple[Lost, Amounts]] = Lost(), {}
OTHERS: Final = "(others)"
"""The name of the lines for removed queues, and for victims for which the table has no free line."""


class LossKey(NamedTuple):
    """The key of a sum. ``claimant`` is the preemptor's queue, or the queue whose usage a quota run reduces.

    ``user`` and ``application`` are the user and the application of the victim. In the table by queue, these two fields are
    empty.
    """

    policy: str
    claimant: str
    victim: str
    user: str = ""
    application: str = ""


class Going(NamedTuple):
    """The order to evict an allocation: the policy, the queue that gets the capacity, the instant, and the delivery ("" means "delete").

    ``softly`` says that the allocation is only marked, and that another operator has to delete it (J11). ``awaited`` has the asks
    for which the allocation is evicted. ``awaited`` is empty unless the allocation is only marked and the core may plan for these
    asks again. All victims of one order share one object.
    """

    policy: str
    claimant: str
    ordered_ms: int
    delivery: str = ""
    awaited: tuple[str, ...] = ()

    @property
    def softly(self) -> bool:
        """Return whether the allocation is only marked."""
        return self.delivery == SOFT


class LostWork:
    """One table of a partition: sums since the core started, and sums by minute for as many minutes as are kept.

    Amounts are by resource type, in the unit of the type multiplied by milliseconds.
    """

    __slots__ = ("amounts", "complete_ms", "lines", "minutes")

    def __init__(self) -> None:
        self.lines: dict[LossKey, Lost] = {}
        self.amounts: dict[LossKey, Amounts] = {}
        self.minutes: dict[tuple[int, LossKey], tuple[Lost, Amounts]] = {}
        self.complete_ms = 0
        """The instant since which the sums by minute are complete. The instant is 0 if no minute was dropped."""

    def add(
        self, line: LossKey, lost: Lost, ordered_ms: int = 0, amounts: Amounts | None = None
    ) -> None:
        """Add a victim that has ended and whose eviction was ordered at ``ordered_ms``."""
        held = amounts or {}
        self._add_minute(ordered_ms // MINUTE_MS, line, lost, held)
        line = self._line_to_count(line)
        self.lines[line] = self.lines.get(line, NONE[0]).plus(lost)
        self.amounts[line] = summed(self.amounts.get(line, {}), held)

    def _line_to_count(self, line: LossKey) -> LossKey:
        """Return the line to which a victim with this key is added.

        Lines of applications fill at most half of the table, because applications come and go.
        """
        if line.application and line not in self.lines and len(self.lines) >= LINES_MAX // 2:
            line = line._replace(application=OTHERS)
        if line in self.lines or len(self.lines) < LINES_MAX:
            return line
        user = OTHERS if line.application else ""
        return LossKey(line.policy, OTHERS, OTHERS, user, user)

    def _add_minute(self, minute: int, line: LossKey, lost: Lost, amounts: Amounts) -> None:
        if minute * MINUTE_MS < self.complete_ms:
            return
        key = minute, line
        before, held = self.minutes.get(key, NONE)
        self.minutes[key] = before.plus(lost), summed(held, amounts)
        if len(self.minutes) > MINUTES_MAX:
            oldest = min(one for one, _ in self.minutes)
            self.complete_ms = (oldest + 1) * MINUTE_MS
            self.minutes = {key: one for key, one in self.minutes.items() if key[0] > oldest}

    def since(self, instant: int) -> tuple[dict[LossKey, tuple[Lost, Amounts]], int]:
        """Return the work lost by evictions that were ordered since an instant. The instant is rounded down to a whole minute.

        Also return the instant since which the sums are complete.
        """
        begin = max(instant // MINUTE_MS * MINUTE_MS, self.complete_ms)
        found: dict[LossKey, tuple[Lost, Amounts]] = {}
        for (minute, line), (lost, amounts) in self.minutes.items():
            if minute * MINUTE_MS >= begin:
                before, held = found.get(line, (Lost(), {}))
                found[line] = before.plus(lost), summed(held, amounts)
        return found, begin

    def forget(self, paths: Iterable[str]) -> None:
        """Add the sums of removed queues to the sums of OTHERS, and remove their lines."""
        gone = frozenset(paths)
        found = [one for one in self.lines if gone & {one.claimant, one.victim}]
        minutes = self.minutes
        self.minutes = {}
        for line in found:
            lost, amounts = self.lines.pop(line), self.amounts.pop(line)
            self.add(_folded(line, gone), lost, amounts=amounts)
        self.minutes = {}
        for (minute, line), (lost, amounts) in minutes.items():
            self._add_minute(minute, _folded(line, gone), lost, amounts)


def _folded(line: LossKey, gone: frozenset[str]) -> LossKey:
    claimant = OTHERS if line.claimant in gone else line.claimant
    victim = OTHERS if line.victim in gone else line.victim
    return line._replace(claimant=claimant, victim=victim)


def summed(one: Amounts, other: Amounts) -> Amounts:
    """Return the sum of two amounts, type by type."""
    if not one or not other:
        return one or other
    found = dict(one)
    for kind, amount in other.items():
        found[kind] = found.get(kind, 0) + amount
    return found


class LostWorkTotals:
    """The work that victims of one partition lost: one table with sums by queue, and one table with sums by queue, user and application."""

    __slots__ = ("by_owner", "by_queue")

    def __init__(self) -> None:
        self.by_queue = LostWork()
        self.by_owner = LostWork()
