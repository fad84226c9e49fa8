"""The doctor's findings about preemption: pairs that the thrashing monitor stopped, guarantees that are not met."""

from collections.abc import Iterator
from typing import Final

from server.core.queries.unmet import needs
from server.core.state import State
from server.model.phrases import count, some, span
from server.model.reasons import Code
from server.model.reports import Finding
from server.state.partition import Partition

WAITING_MS: Final = 600_000
"""The time after which a waiting ask is worth a look."""
NAMED_MAX: Final = 10
"""The most objects of one kind that a finding names."""


def warning(subject: str, code: str, message: str, advice: str) -> Finding:
    """Return a finding that is no error."""
    return Finding("warning", subject, code, message, advice)


def storms(partition: Partition, now: int | None) -> Iterator[Finding]:
    """Yield a finding for each pair that the thrashing monitor stopped (7.7)."""
    for one in partition.storms.frozen.values():
        if now is not None and one.until_ms <= now:
            continue
        left = f" for {span(one.until_ms - now)} more" if now is not None else ""
        yield warning(
            f"queue {one.pair.beneficiary.queue}",
            Code.PREEMPTION_STORM.value,
            f"its claims from queue {one.pair.victims.queue} repeated without end (policy {one.policy}): "
            f"nobody goes for them{left}",
            "A rule of preemption is wrong: report it with the input trace and `evenhand decisions`. "
            "An applied configuration ends it, as does time.",
        )


def unmet(state: State, partition: Partition, now: int) -> Iterator[Finding]:
    """Yield a finding about guarantees not met though asks have waited for long; the report says why."""
    if not partition.ask_count:
        return
    found = needs.read(state, partition, "", now).queues
    late = [
        one.queue
        for one in found
        if any(now - need.ask.pending_since > WAITING_MS for need in one.needs)
    ]
    if late:
        yield warning(
            f"partition {partition.name}",
            "guarantee-unmet",
            f"{count(len(late), 'queue')} below the guarantee with asks waiting for more than "
            f"{span(WAITING_MS)}: {some(late, NAMED_MAX)}",
            "`evenhand queues --unmet QUEUE` says what binds each, and the smallest change that cures it.",
        )
