"""Invariants of the thrashing monitor, the lost-work tables and the shadow: tables are bounded, sums agree, and each pod with an eviction order is releasing."""

from server.state import lost_work, shadow, thrashing
from server.state.partition import Partition


def check_thrashing(partition: Partition) -> None:
    """Assert that the thrashing monitor's tables are bounded, and that a queue's external losses never decrease (invariant 18)."""
    known = partition.thrashing
    for name in ("deficits", "taken", "strikes", "frozen"):
        entries = len(getattr(known, name))
        assert entries <= thrashing.ENTRIES_MAX, f"the thrashing monitor keeps {entries} {name}"
    for pair, one in known.frozen.items():
        assert one.pair == pair, f"{one.pair} stands as frozen pair {pair}"
        assert one.since_ms < one.until_ms, f"frozen pair {pair} thaws before it froze"
    assert known.total >= len(known.frozen), (
        f"{len(known.frozen)} pairs are frozen, {known.total} were"
    )
    for (queue, kind), deficit in known.deficits.items():
        assert deficit.left >= 0, f"queue {queue} was left a deficit of {deficit.left} {kind}"
        assert queue in partition.queues, f"a deficit of queue {queue} is kept, which is gone"
        lost = partition.queues[queue].lost[partition.types.index[kind]]
        assert deficit.lost <= lost, f"queue {queue} had lost {deficit.lost} {kind}, and now {lost}"


def _check_table(partition: Partition, table: lost_work.LostWork) -> None:
    lines = table.lines
    assert len(lines) <= lost_work.LINES_MAX + len({one.policy for one in lines}), (
        f"lost work has {len(lines)} lines"
    )
    assert lines.keys() == table.amounts.keys(), "lost work has amounts of other lines"
    assert len(table.minutes) <= lost_work.MINUTES_MAX, "too many minutes are kept"
    for line, lost in lines.items():
        assert lost.victims > 0, f"lost work of {line} counts {lost.victims} victims"
        assert min(lost) >= 0, f"lost work of {line} is {lost}"
        for path in (line.claimant, line.victim):
            known = path in ("", lost_work.OTHERS) or path in partition.queues
            assert known, f"lost work names queue {path}, which is gone"


def check_lost_work(partition: Partition) -> None:
    """Assert that the two tables of lost work are bounded, and that both count the same number of victims.

    Each pod with an eviction order must be releasing.
    """
    for table in (partition.lost.by_queue, partition.lost.by_owner):
        _check_table(partition, table)
    counted, owned = (
        sum(one.victims for one in table.lines.values())
        for table in (partition.lost.by_queue, partition.lost.by_owner)
    )
    assert counted == owned, f"lost work of {counted} victims has owners for {owned}"
    for ask in partition.asks.values():
        told = ask.going is not None
        assert told == bool(ask.leaves_by), f"allocation {ask.key} is told to go, or not"
        assert ask.releasing or not told, f"allocation {ask.key} is told to go and not releasing"
        softly = ask.going is not None and ask.going.softly
        assert softly == (ask.key in partition.decisions.marked), (
            f"allocation {ask.key} is marked, or not"
        )
    for key, ask in partition.decisions.marked.items():
        assert partition.decisions.leaving.get(key) is ask, (
            f"allocation {key} is marked and not leaving"
        )


def check_shadow(partition: Partition) -> None:
    """Assert that a shadow's memory is bounded.

    Each decision and each record must be stored under its own key. No two open decisions may have the same victim.
    """
    known = partition.shadow
    if known is None:
        return
    assert len(known.records) <= shadow.RECORDS_MAX, f"a shadow keeps {len(known.records)} records"
    assert len(known.held) < shadow.HELD_MAX + len(partition.asks), "a shadow holds too much"
    for name, held in known.held.items():
        assert held.subjects[:1] == (name,), (
            f"what the shadow holds for {held.subjects} is kept as {name}"
        )
    for key, record in known.records.items():
        assert record.key == key, f"the record of {record.key} is kept as that of {key}"
        sides = (record.live is not None, record.shadow is not None)
        assert any(sides), f"the shadow's record of {key} tells of nobody"
    taken = [key for held in known.held.values() for key, _ in held.victims]
    assert len(taken) == len(set(taken)), "a victim goes twice for a shadow"
