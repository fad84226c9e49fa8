"""Decisions as the core keeps them, for the small cluster of `test_evenhand`."""

from dataclasses import replace

from server.model.decisions import Decided, Decision
from server.model.records import (
    Beneficiary,
    DecisionRecord,
    DecisionState,
    Level,
    Shrink,
    ShrinkResult,
    Spared,
    Victim,
)
from tests.rpc.harness import RM, Served

T0 = 1_700_000_000_000


def victim(key: str, queue: str, because: str = "over its guarantee (rule 5, G4)") -> Victim:
    """Return a victim: a pod of a queue that is evicted."""
    return Victim(
        key,
        f"app-of-{key}",
        queue,
        "n1",
        (("vcore", 1),),
        3,
        opted_out=False,
        originator=False,
        because=because,
    )


def claim(
    decision_id: str = "g-1-1", asker: str = "root.a", *victims: Victim, at_ms: int = T0
) -> DecisionRecord:
    """Return the record of a claim of queue `asker`; by default its victim is a pod of root.b."""
    gets = Beneficiary("large", "app", asker, "n1", (("vcore", 50),), 7)
    return DecisionRecord(
        decision_id,
        "guaranteed",
        "default",
        at_ms,
        DecisionState.ORDERED,
        f"Ask large of {asker} takes the capacity of other of root.b.",
        beneficiaries=(gets,),
        victims=victims or (victim("other", "root.b"),),
        spared=(
            Spared("below-guarantee", "root.a.deep", 1, ("kept-a",)),
            Spared("below-guarantee", "root.b", 2, ("kept-b",)),
            Spared("below-guarantee", "root.c", 3, ("kept-c",)),
        ),
        levels=(
            Level("root.a", "deciding", "vcore", 60, None, 1),
            Level("root.b", "blocking", "vcore", 5, 10, 6),
            Level("root", "blocking", "vcore", 0, 200, 7),
        ),
        expires_ms=at_ms + 600_000,
    )


def quota_run(queue: str, *victims: Victim, decision_id: str = "q-1-2") -> DecisionRecord:
    """Return the record of a quota run that has to free three millicores and misses one of them."""
    shrink = Shrink(
        queue,
        {"vcore": 3},
        {"vcore": 2},
        {"vcore": 1},
        ShrinkResult.SHORTFALL,
        5,
        "below-guarantee",
        "root.b.inner",
    )
    return DecisionRecord(
        decision_id,
        "quota",
        "default",
        T0 + 1_000,
        DecisionState.ORDERED,
        f"Queue {queue} is reduced to its maximum.",
        victims=victims,
        shrink=shrink,
    )


def keep(served: Served, *records: DecisionRecord) -> None:
    """Add decisions to the core's state, and send them to all watchers."""
    for record in records:
        state = served.core.state.partitions[record.partition]
        state.decisions.records[record.decision_id] = record
    tell(served, *(Decided(RM, record) for record in records))


def move(served: Served, record: DecisionRecord, **changes: object) -> DecisionRecord:
    """Change a record in the core's state without notifying watchers, and return it."""
    moved = replace(record, **changes)  # type: ignore[arg-type]
    served.core.state.partitions[record.partition].decisions.records[record.decision_id] = moved
    return moved


def tell(served: Served, *decisions: Decision) -> None:
    """Send decisions and wake the watchers, as the pump does when the core has decided."""
    served.endpoint.pump._send(list(decisions), served.clock.now())
    served.endpoint.pump.wake_watchers()
