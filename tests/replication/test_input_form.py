"""The form of the input of followers: every event is read as it was given, and damaged bytes raise only BadInputError."""

import random
from typing import Any

import pytest

from server.core.core import Core
from server.model.asks import (
    AskSpec,
    Constraints,
    Generation,
    GroupPreference,
    HostPort,
    Operator,
    Preferences,
    PreferredTerm,
    Protection,
    ReleaseMark,
    Requirement,
    Taint,
    Term,
    Toleration,
    values,
)
from server.model.assignment import Assignment
from server.model.decisions import Decision, Placed, Released, Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    DisruptionsAllowed,
    Event,
    ForeignAdded,
    LeadershipTaken,
    ManagerRegistered,
    NodeAdded,
    NodeUpdated,
    PartitionMoving,
    PlanChecked,
    ReleaseRequested,
    VictimVetoed,
)
from server.model.moves import MoveStep
from server.model.quota import DEFAULT_CONFIGURATION
from server.record.trace import KINDS
from server.replication import input_form
from server.replication.feed import Feed, digest_of
from server.replication.input_form import BadInputError, Given, InputReader, InputWriter, Ticked
from tests.effort import cases
from tests.ticks import ticked

TERM = Term((Requirement("zone", Operator.NOT_IN, ("a", "b")),), (Requirement("n", Operator.IN),))
SPEC = AskSpec(
    (("memory", 1 << 61), ("vcore", 10)),
    priority=-5,
    constraints=Constraints((("disk", "ssd"),), (TERM,), (Toleration("k"),), "n", (HostPort(80),)),
    protection=Protection.FIRM,
    lendable=False,
    gang_key="gang",
    preferences=Preferences((PreferredTerm(3, TERM),), (GroupPreference("g", "zone", -1),)),
)
LARGE = AskSpec((("vcore", 1 << 70),), task_group="\ud800")
"""A template that MessagePack cannot hold."""
EVENTS: tuple[Event, ...] = (
    ManagerRegistered("rm", explicit_sync=True, configuration=DEFAULT_CONFIGURATION),
    ConfigurationApplied(DEFAULT_CONFIGURATION, "file"),
    NodeAdded(
        "rm",
        "n",
        (("vcore", 10),),
        schedulable=False,
        labels=(("b", "1"), ("a", "2")),
        taints=(Taint("k", "v", "NoExecute"),),
    ),
    NodeUpdated("rm", "n"),
    NodeUpdated("rm", "n", labels=()),
    ApplicationAdded("rm", "a", groups=("g", "f"), tags={"z": "1", "a": "2"}),
    AskAdded("rm", "k", "a", SPEC, created_ms=5, tags=(b"\xff\x00", b"")),
    AskAdded("rm", "\ud800", "a", SPEC, created_ms=1 << 80, generation=Generation.ASK),
    AskAdded("rm", "m", "a", LARGE),
    AskAdded("rm", "l", "a", SPEC),
    AllocationAdded("rm", "o", "a", "n", SPEC, releasing=ReleaseMark(3, "d", "k", "n", "soft")),
    ForeignAdded("rm", "f", "n", (("vcore", 1),), static=True, tags=(b"t",)),
    ReleaseRequested("rm", "a", "k", termination=Termination.TIMEOUT, message="\ud800"),
    ReleaseRequested("rm", "a", "", generation=Generation.ASK, asks_only=True),
    VictimVetoed("rm", "d", "k", "é"),
    PlanChecked("rm", "default", "c", fits=False, refused=(("k", "it is full"),)),
    DisruptionsAllowed("rm", "g", None),
    DisruptionsAllowed("rm", "g", 0),
    LeadershipTaken(),
    LeadershipTaken(assignment=Assignment("a", {"gpu": "b"}, "a", 3)),
    PartitionMoving(MoveStep.PART, "gpu", "b", 3, 4, 5, 6, "~content"),
)


def as_given(event: Event) -> tuple[Any, ...]:
    """Return an event so that equal templates are equal, with the types of its fields."""
    fields = [values(one) if isinstance(one, AskSpec) else one for one in event]
    return type(event), fields, [type(one) for one in event]


def test_every_event_is_read_as_it_was_given() -> None:
    for seed in range(cases(50, 10)):
        chance = random.Random(seed)
        writer, reader = InputWriter(), InputReader()
        now = 0
        for _ in range(5):
            given: list[Given | Ticked] = []
            for _ in range(chance.randrange(4)):
                now += chance.randrange(2)
                events = chance.choices(EVENTS, k=chance.randrange(20))
                writer.events(events, now)
                given += (Given(now, one) for one in events)
            writer.tick(now, 100)
            given.append(Ticked(now, 100))
            found = reader.read(writer.take())
            assert [shown(one) for one in found] == [shown(one) for one in given], f"seed {seed}"


def shown(step: Given | Ticked) -> object:
    """Return a step so that steps compare with the types of all fields."""
    return (step.now, as_given(step.event)) if isinstance(step, Given) else step


def test_every_kind_of_event_has_a_form() -> None:
    assert {*KINDS.values()} == input_form._FORMS.keys()


def test_asks_of_one_template_share_it_across_slices() -> None:
    writer, reader = InputWriter(), InputReader()
    specs, packed = [], b""
    for number in range(3):
        writer.events([AskAdded("rm", f"{number}-{n}", "a", SPEC) for n in range(3)], number)
        packed = writer.take()
        specs += [one.event.spec for one in reader.read(packed) if isinstance(one, Given)]  # type: ignore[union-attr]
    assert len({*map(id, specs)}) == 1
    assert values(specs[0]) == values(SPEC)
    assert b"zone" not in packed


def test_with_too_many_templates_the_oldest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_form, "SPECS_MAX", 3)
    specs = [AskSpec((("vcore", n + 1),)) for n in range(9)]
    for seed in range(cases(50, 10)):
        chance = random.Random(seed)
        writer, reader = InputWriter(), InputReader()
        for now in range(10):
            asks = [
                AskAdded("rm", "k", "a", chance.choice(specs)) for _ in range(chance.randrange(9))
            ]
            writer.events(asks, now)
            found = [one.event for one in reader.read(writer.take()) if isinstance(one, Given)]
            assert [*map(as_given, found)] == [*map(as_given, asks)], f"seed {seed}"
            assert len(reader._specs) == len(writer._specs) <= 3


def test_damaged_bytes_are_refused_or_hold_other_steps() -> None:
    writer = InputWriter()
    writer.events(EVENTS, 5)
    writer.tick(5, 100)
    whole = writer.take()
    refused = 0
    for seed in range(cases(2_000, 200)):
        chance = random.Random(seed)
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        cut = chance.choice([len(damaged), chance.randrange(len(damaged))])
        try:
            InputReader().read(bytes(damaged[:cut]))
        except BadInputError:
            refused += 1
    assert refused > cases(2_000, 200) // 2


def test_input_before_that_of_the_slice_before_is_refused() -> None:
    writer, reader = InputWriter(), InputReader()
    writer.tick(5, 100)
    reader.read(writer.take())
    writer.tick(4, 100)
    with pytest.raises(BadInputError, match="its instant 4 is before 5"):
        reader.read(writer.take())


def test_a_template_from_before_a_reader_began_is_refused() -> None:
    writer = InputWriter()
    writer.events([AskAdded("rm", "k", "a", SPEC)], 1)
    writer.take()
    writer.events([AskAdded("rm", "l", "a", SPEC)], 2)
    with pytest.raises(BadInputError):
        InputReader().read(writer.take())


PLACED = Placed("rm", "default", "k", "a", "n", SPEC, (b"t",), queue="root.a")
RELEASED = Released("rm", "default", "k", "a", Termination.STOPPED_BY_RM)


@pytest.mark.parametrize(
    "other",
    [
        [PLACED._replace(node_id="m"), RELEASED],
        [PLACED._replace(queue="root.b"), RELEASED],
        [PLACED, RELEASED._replace(termination=Termination.TIMEOUT)],
        [PLACED, RELEASED._replace(message="\ud800")],
        [PLACED._replace(key="\ud800"), RELEASED],
        [RELEASED, PLACED],
        [PLACED],
        [PLACED, PLACED, RELEASED],
    ],
)
def test_other_decisions_have_another_digest(other: list[Decision]) -> None:
    decisions: list[Decision] = [PLACED, RELEASED]
    assert digest_of(decisions) == digest_of([*decisions]) != digest_of(other)
    assert digest_of(other) == digest_of([*other])


def test_a_placement_has_the_same_digest_with_an_equal_template() -> None:
    again = PLACED._replace(spec=AskSpec(*values(SPEC)))  # type: ignore[arg-type]
    assert digest_of([PLACED]) == digest_of([again])
    assert digest_of([]) == b""


def test_a_feed_without_followers_packs_nothing() -> None:
    feed = Feed(Core(), "v")
    feed.take(EVENTS[:1], 1)
    ticked(feed, 1, 100)
    assert feed._writer is None
