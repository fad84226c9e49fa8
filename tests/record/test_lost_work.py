"""The decision log has the lost work of victims; lines of older versions without it can be read too."""

from server.model.decisions import Decided
from server.model.records import DecisionRecord, DecisionState, Victim, lost_work
from server.record.serialization import Fields, Forms

FORM = Fields(Decided, Forms().of)


def decided() -> Decided:
    resource = (("memory", 1 << 30), ("vcore", 500))
    victim = Victim("v", "app", "root.b", "n1", resource, 0, False, False, "rule 5", 90_000)  # noqa: FBT003
    record = DecisionRecord(
        "g-1-1", "guaranteed", "default", 1, DecisionState.ORDERED, "one goes", victims=(victim,)
    )
    return Decided("rm", record)


def test_a_line_says_how_long_each_victim_had_run() -> None:
    written = FORM.write(decided())
    assert written["record"]["victims"][0]["ran_ms"] == 90_000  # type: ignore[call-overload, index]
    found = FORM.read(written)
    assert found == decided()
    assert lost_work(decided().record).millicore_ms == 45_000_000


def test_a_line_of_before_is_read_and_counts_nothing() -> None:
    written = FORM.write(decided())
    del written["record"]["victims"][0]["ran_ms"]  # type: ignore[call-overload, index, union-attr]
    found = FORM.read(written)
    assert isinstance(found, Decided)
    assert found.record.victims[0].ran_ms == 0
