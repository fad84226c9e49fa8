"""Records of decisions while the decisions proceed."""

from dataclasses import fields, replace

from server.core.preemption import decision_records
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

RECORD = DecisionRecord(
    "g-1-1",
    "guaranteed",
    "default",
    1,
    DecisionState.ORDERED,
    "a summary",
    beneficiaries=(Beneficiary("p", "app", "root.a", "n1", (), 0),),
    victims=(
        Victim("v", "app", "root.b", "n1", (), 0, opted_out=False, originator=False, because="b"),
    ),
    spared=(Spared("fence", "root.b", 1, ("q",)),),
    levels=(Level("root.a", "deciding", "memory", 2, None, 1),),
    shrink=Shrink("root.c", {}, {}, {}, ShrinkResult.COMPLETE, 1),
    expires_ms=9,
    ended_ms=0,
    confirmed=("x",),
    vetoed=("y",),
    end_reason="",
    withdrawn=("z",),
)


def test_a_record_that_moves_keeps_all_else() -> None:
    state = DecisionState.ABORTED
    moved = decision_records.moved(RECORD, state, 5, "why", ("x", "w"))
    changes = {"state": state, "ended_ms": 5, "end_reason": "why", "confirmed": ("x", "w")}
    assert moved == replace(RECORD, **changes)  # type: ignore[arg-type]
    same = {one.name for one in fields(RECORD)} - changes.keys()
    assert all(getattr(moved, name) is getattr(RECORD, name) for name in same)


def test_one_that_stays_open_has_no_end() -> None:
    moved = decision_records.moved(RECORD, DecisionState.ORDERED, 5, "why", ())
    assert (moved.ended_ms, moved.end_reason) == (0, "")
