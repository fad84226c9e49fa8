"""When a quota run is due (Q1 to Q7, Q17), on plain state, and compared with YuniKorn's table of timings."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from server.model.parts import whole
from server.model.quota import ChildTemplate, PreemptionSettings, QueueProperties, QueueSpec
from server.model.resources import limit, resource
from server.state import journal, quota_timers, tree
from server.state.commitments import Commitment
from server.state.quota_timers import Move, QuotaNote, WhyNot
from tests.preemption.clusters import START, Cluster

DELAY = 5_000
LATER = START + 1_000


def queue(
    name: str = "a",
    most: dict[str, int] | None = None,
    delay: int = DELAY,
    children: tuple[QueueSpec, ...] = (),
    **more: Any,
) -> QueueSpec:
    """Return a queue with a maximum and a quota delay."""
    properties = QueueProperties(quota_delay_ms=delay, **more)
    most_of = None if most is None else limit(most)
    return QueueSpec(
        name, parent=bool(children), max=most_of, properties=properties, children=children
    )


@dataclass
class Clock:
    """A partition whose configuration changes; ``used`` is what runs in root.a, or in its first leaf."""

    cluster: Cluster

    @classmethod
    def of(cls, *queues: QueueSpec, on: bool = True, **used: int) -> "Clock":
        cluster = Cluster(*queues)
        clock = cls(cluster)
        cluster.partition.spec = replace(
            cluster.partition.spec, preemption=PreemptionSettings(quota_enabled=on)
        )
        cluster.nodes("n1", memory=10_000, vcore=10_000)
        if used:
            clock.run("e", **used)
        return clock

    def run(self, key: str, leaf: str = "", /, **used: int) -> None:
        """Something runs, with or without headroom."""
        leaves = self.cluster.partition.root.children["a"].leaves()
        path = leaf or next(leaves).path
        self.cluster.application(path, path)
        due = self.cluster.partition.quota_due
        before = dict(due)
        self.cluster.existing(key, "n1", path, **used)
        due.clear()  # the core armed it: here the timers are asked without the core
        due.update(before)

    def configure(self, *queues: QueueSpec, on: bool = True, now: int = START) -> list[QuotaNote]:
        """Another configuration is applied."""
        partition = self.cluster.partition
        before = partition.spec
        root = replace(before.root, children=queues)
        preemption = PreemptionSettings(quota_enabled=on)
        spec = replace(before, root=root, preemption=preemption)
        whole(tree.apply_spec_in_parts(partition, spec))
        return whole(quota_timers.on_configuration(partition, before, now))

    def begin(self, path: str = "root.a") -> Commitment:
        """Begin a quota run of the queue."""
        run = Commitment("q-1", "quota", START, queue=path)
        self.cluster.partition.decisions.open[run.commitment_id] = run
        return run

    @property
    def due(self) -> dict[str, int]:
        return {path: due - START for path, due in self.cluster.partition.quota_due.items()}


def moves(notes: list[QuotaNote]) -> list[tuple[str, str]]:
    return [(note.queue, note.move.value) for note in notes]


# Q3: what arms ----------------------------------------------------------------------------------------------------

LOWERED: list[tuple[str, dict[str, int] | None, dict[str, int] | None, dict[str, int], list[str]]] = [
    ("lowered", {"memory": 100}, {"memory": 50}, {"memory": 80}, ["memory"]),
    ("appeared", None, {"memory": 50}, {"memory": 80}, ["memory"]),
    ("both types", {"memory": 100, "vcore": 100}, {"memory": 50, "vcore": 50},
     {"memory": 80, "vcore": 80}, ["memory", "vcore"]),
    ("one up, one down", {"memory": 100, "vcore": 100}, {"memory": 200, "vcore": 50},
     {"memory": 100, "vcore": 80}, ["vcore"]),
    ("a new type", {"memory": 100}, {"memory": 100, "vcore": 100},
     {"memory": 50, "vcore": 500}, ["vcore"]),
    ("a type dropped", {"memory": 100, "vcore": 100}, {"memory": 50},
     {"memory": 80, "vcore": 100}, ["memory"]),
    ("types swapped", {"memory": 100}, {"vcore": 100}, {"memory": 100, "vcore": 500}, ["vcore"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "used", "over"),
    [row[1:] for row in LOWERED],
    ids=[row[0] for row in LOWERED],
)
def test_each_row_of_the_seeds_table_arms_the_timer(
    before: dict[str, int] | None, after: dict[str, int], used: dict[str, int], over: list[str]
) -> None:
    """2.1 and Q3: max lowered in some type, or appeared; a type that is new counts as lowered."""
    clock = Clock.of(queue(most=before))
    clock.run("e", **used)
    (note,) = clock.configure(queue(most=after))
    assert note == QuotaNote("root.a", Move.ARMED, START + DELAY, tuple(over))
    assert clock.due == {"root.a": DELAY}


def test_no_delay_never_enforces() -> None:
    clock = Clock.of(queue(most={"memory": 100}, delay=0), memory=80)
    assert clock.configure(queue(most={"memory": 50}, delay=0)) == []
    assert clock.due == {}


def test_within_the_new_maximum_nothing_is_armed() -> None:
    clock = Clock.of(queue(most={"memory": 100}), memory=50)
    assert clock.configure(queue(most={"memory": 50})) == []
    assert clock.due == {}


def test_what_leaves_already_does_not_count() -> None:
    clock = Clock.of(queue(most={"memory": 100}), memory=80)
    partition = clock.cluster.partition
    journal.set_releasing(partition, partition.asks["e"], releasing=True)
    assert clock.configure(queue(most={"memory": 50})) == []


@pytest.mark.parametrize(("before", "after"), [(5_000, 9_000), (0, 9_000)])
def test_another_positive_delay_arms(before: int, after: int) -> None:
    clock = Clock.of(queue(most={"memory": 50}, delay=before), memory=80)
    clock.configure(queue(most={"memory": 50}, delay=after))
    assert clock.due == {"root.a": after}


def test_a_raised_maximum_arms_nothing() -> None:
    clock = Clock.of(queue(most={"memory": 50}), memory=80)
    assert clock.configure(queue(most={"memory": 60})) == []
    assert clock.due == {}


def test_a_queue_that_was_dynamic_until_now_has_a_maximum_for_the_first_time() -> None:
    template = ChildTemplate(
        max=limit({"memory": 50}), properties=QueueProperties(quota_delay_ms=DELAY)
    )
    parent = QueueSpec("a", parent=True, template=template)
    clock = Clock.of(parent)
    tree.create_path(clock.cluster.partition, "root.a.u")
    clock.run("e", "root.a.u", memory=80)
    clock.configure(replace(parent, children=(queue("u", {"memory": 50}),)))
    assert clock.due == {"root.a.u": DELAY}


# Q4: later changes ------------------------------------------------------------------------------------------------


def armed(**more: Any) -> Clock:
    """root.a uses 80 of 50, due after DELAY."""
    clock = Clock.of(queue(most={"memory": 100}, **more), memory=80, vcore=10)
    clock.configure(queue(most={"memory": 50}, **more))
    assert clock.due == {"root.a": DELAY}
    return clock


def test_lowered_again_starts_again() -> None:
    clock = armed()
    assert moves(clock.configure(queue(most={"memory": 40}), now=LATER)) == [
        ("root.a", "restarted")
    ]
    assert clock.due == {"root.a": 1_000 + DELAY}


def test_raised_before_the_due_time_disarms_although_it_is_over() -> None:
    clock = armed()
    (note,) = clock.configure(queue(most={"memory": 60}), now=LATER)
    assert note == QuotaNote("root.a", Move.RAISED, None, ("memory",))
    assert clock.due == {}


def test_a_type_removed_counts_as_raised() -> None:
    clock = Clock.of(queue(most={"memory": 100, "vcore": 100}), memory=80, vcore=10)
    clock.configure(queue(most={"memory": 50, "vcore": 50}))
    assert moves(clock.configure(queue(most={"memory": 50}), now=LATER)) == [("root.a", "raised")]


def test_raised_in_one_type_and_lowered_in_another_starts_again() -> None:
    clock = armed()
    clock.configure(queue(most={"memory": 60, "vcore": 50}), now=LATER)
    assert clock.due == {"root.a": 1_000 + DELAY}


def test_raised_with_another_delay_starts_again() -> None:
    clock = armed()
    clock.configure(queue(most={"memory": 60}, delay=9_000), now=LATER)
    assert clock.due == {"root.a": 10_000}


def test_a_maximum_above_the_usage_disarms() -> None:
    clock = armed()
    assert moves(clock.configure(queue(most={"memory": 80}), now=LATER)) == [("root.a", "within")]
    assert clock.due == {}


@pytest.mark.parametrize("after", [queue(most={"memory": 50}, delay=0), queue(most=None)])
def test_without_delay_or_maximum_it_is_disarmed(after: QueueSpec) -> None:
    clock = armed()
    assert moves(clock.configure(after, now=LATER)) == [("root.a", "off")]
    assert clock.due == {}


def test_other_edits_never_touch_it() -> None:
    clock = armed()
    other = replace(queue(most={"memory": 50}), guaranteed=resource({"memory": 7}), weight=3)
    assert clock.configure(other, queue("b"), now=LATER) == []
    assert clock.due == {"root.a": DELAY}


def test_another_timer_property_is_another_edit() -> None:
    clock = armed()
    assert clock.configure(queue(most={"memory": 50}, quota_timer="keep-earliest")) == []
    assert clock.due == {"root.a": DELAY}


def test_keep_earliest_does_not_put_it_off() -> None:
    clock = armed(quota_timer="keep-earliest")
    lower = queue(most={"memory": 40}, quota_timer="keep-earliest")
    assert moves(clock.configure(lower, now=LATER)) == [("root.a", "kept")]
    assert clock.due == {"root.a": DELAY}


def test_keep_earliest_takes_an_earlier_instant() -> None:
    clock = armed(quota_timer="keep-earliest")
    sooner = queue(most={"memory": 50}, delay=100, quota_timer="keep-earliest")
    clock.configure(sooner, now=LATER)
    assert clock.due == {"root.a": 1_100}


def test_a_queue_that_is_not_configured_any_more_is_disarmed() -> None:
    clock = armed()
    assert moves(clock.configure(queue("b"), now=LATER)) == [("root.a", "off")]
    assert clock.due == {}


PEER = [
    ("T1", None, None, 0, 0, 0, False, None),
    ("T2", {"memory": 0}, {"memory": 100}, 0, 0, 0, False, None),
    ("T3", {"memory": 100}, None, 0, 10, 10, False, None),
    ("T4", {"memory": 100}, None, 0, 0, 10, True, None),
    ("T7", {"memory": 100}, {"memory": 100}, 0, 5, 10, False, None),
    ("T9", {"memory": 100}, {"memory": 10}, 5, 10, 10, True, None),
    (
        "T10, where the peer keeps its instant",
        {"memory": 100},
        {"memory": 10},
        110,
        10,
        10,
        True,
        20,
    ),
    ("T12, where the peer goes on", {"memory": 10}, {"memory": 100}, 110, 5, 5, True, None),
    ("T13", {"memory": 10}, {"memory": 100}, 90, 5, 5, True, None),
    ("T15", {"memory": 100}, {"memory": 10}, 0, 10, 5, True, None),
]


@pytest.mark.parametrize(
    ("before", "after", "used", "old", "new", "was_armed", "expected"),
    [row[1:] for row in PEER],
    ids=[str(row[0]) for row in PEER],
)
def test_the_peers_table_of_timing(  # noqa: PLR0913, PLR0917
    before: dict[str, int] | None,
    after: dict[str, int] | None,
    used: int,
    old: int,
    new: int,
    was_armed: bool,  # noqa: FBT001
    expected: int | None,
) -> None:
    """`start changes?` of the table, at instant 10 with a timer that was due at 15; None: no timer afterwards."""
    due, _ = quota_timers.rearm(
        queue(most=before, delay=old),
        queue(most=after, delay=new),
        over=("memory",) if after and used > after["memory"] else (),
        due_ms=15 if was_armed else None,
        now=10,
    )
    assert due == expected


# Q1, Q7: the switch, the sync, usage by force -----------------------------------------------------------------


def test_turning_the_switch_off_disarms_all() -> None:
    clock = armed()
    assert moves(clock.configure(queue(most={"memory": 50}), on=False)) == [("root.a", "off")]
    assert clock.due == {}


def test_while_it_is_off_nothing_is_armed() -> None:
    clock = Clock.of(queue(most={"memory": 100}), on=False, memory=80)
    assert clock.configure(queue(most={"memory": 50}), on=False) == []
    assert quota_timers.arm_all(clock.cluster.partition, LATER) == []
    assert clock.due == {}


def test_turning_it_on_arms_whoever_is_over() -> None:
    clock = Clock.of(queue(most={"memory": 50}), on=False, memory=80)
    assert moves(clock.configure(queue(most={"memory": 50}), now=LATER)) == [("root.a", "armed")]
    assert clock.due == {"root.a": 1_000 + DELAY}


def test_after_the_sync_whoever_is_over_waits_the_full_delay() -> None:
    clock = Clock.of(
        queue(most={"memory": 50}),
        queue("b", {"memory": 50}, delay=0),
        queue("c", {"memory": 90}),
        memory=80,
    )
    clock.run("f", "root.b", memory=60)
    clock.run("g", "root.c", memory=90)
    clock.cluster.partition.quota_due["root.c"] = START
    assert moves(quota_timers.arm_all(clock.cluster.partition, LATER)) == [("root.a", "armed")]
    assert clock.due == {"root.a": 1_000 + DELAY}


def test_a_shim_that_registers_anew_forgets_the_timers() -> None:
    clock = armed()
    quota_timers.on_restart(clock.cluster.partition)
    assert clock.due == {}


def force(clock: Clock, now: int, *grown: str) -> list[QuotaNote]:
    partition = clock.cluster.partition
    leaf = next(partition.root.children["a"].leaves())
    kinds = [partition.types.index[name] for name in grown]
    return quota_timers.on_forced(partition, leaf, kinds, now)


def test_a_restored_allocation_that_brings_it_over_arms() -> None:
    clock = Clock.of(queue(most={"memory": 50}), memory=40)
    clock.run("f", memory=20)
    assert moves(force(clock, LATER, "memory")) == [("root.a", "armed")]
    assert clock.due == {"root.a": 1_000 + DELAY}


def test_it_arms_every_queue_on_the_path_that_is_over() -> None:
    inner = queue("b", {"memory": 50}, delay=7_000)
    clock = Clock.of(queue("a", {"memory": 50}, children=(inner,)), memory=60)
    assert moves(force(clock, START, "memory")) == [("root.a.b", "armed"), ("root.a", "armed")]
    assert clock.due == {"root.a.b": 7_000, "root.a": DELAY}


@pytest.mark.parametrize("kind", ["vcore", "memory"])
def test_what_grew_in_another_type_or_came_later_arms_nothing_anew(kind: str) -> None:
    clock = armed()
    if kind == "vcore":
        clock.cluster.partition.quota_due.clear()
    assert force(clock, LATER, kind) == []
    assert clock.due == ({"root.a": DELAY} if kind == "memory" else {})


def test_dynamic_queues_are_never_armed() -> None:
    """Q17: neither by force nor after the sync, nor when the template is lowered."""
    template = ChildTemplate(
        max=limit({"memory": 50}), properties=QueueProperties(quota_delay_ms=DELAY)
    )
    parent = QueueSpec("a", parent=True, template=template)
    clock = Clock.of(parent)
    tree.create_path(clock.cluster.partition, "root.a.u")
    clock.run("e", "root.a.u", memory=80)
    partition = clock.cluster.partition
    leaf = partition.queues["root.a.u"]
    assert quota_timers.on_forced(partition, leaf, [partition.types.index["memory"]], START) == []
    assert quota_timers.arm_all(partition, START) == []
    lower = replace(template, max=limit({"memory": 10}))
    assert clock.configure(replace(parent, template=lower)) == []
    assert clock.due == {}
    assert quota_timers.why_not(partition, leaf) is WhyNot.DYNAMIC


# Q5, Q6: what is due ----------------------------------------------------------------------------------------------


def test_it_is_due_at_its_instant_and_not_before() -> None:
    partition = armed().cluster.partition
    assert quota_timers.next_due(partition) == START + DELAY
    assert quota_timers.due(partition, START + DELAY - 1) == []
    assert quota_timers.due(partition, START + DELAY) == ["root.a"]
    assert quota_timers.strike(partition, "root.a") == (True, [])
    assert quota_timers.next_due(partition) is None


def test_within_its_maximum_by_then_it_is_disarmed_quietly() -> None:
    clock = armed()
    clock.cluster.release("e", "root.a")
    assert quota_timers.strike(clock.cluster.partition, "root.a") == (False, [])
    assert clock.due == {}


def test_due_inside_its_own_run_it_is_dropped_and_told() -> None:
    clock = armed()
    clock.begin()
    started, notes = quota_timers.strike(clock.cluster.partition, "root.a")
    assert (started, moves(notes)) == (False, [("root.a", "dropped")])
    assert clock.due == {}


def test_another_queues_run_is_none_of_its_business() -> None:
    clock = armed()
    clock.begin("root.aa")
    assert quota_timers.strike(clock.cluster.partition, "root.a") == (True, [])


def test_earlier_instants_first_and_of_one_instant_the_deepest() -> None:
    partition = Clock.of(queue()).cluster.partition
    at = {"root.a": 5, "root.a.b": 5, "root.c.d": 5, "root.c": 4, "root.z.z": 9}
    partition.quota_due.update(at)
    assert quota_timers.due(partition, 5) == ["root.c", "root.a.b", "root.c.d", "root.a"]


# Over its maximum, and nothing enforces it ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "delay", "on", "expected"),
    [
        (50, DELAY, False, WhyNot.SWITCHED_OFF),
        (50, 0, True, WhyNot.NO_DELAY),
        (50, DELAY, True, WhyNot.SPENT),
        (80, DELAY, True, None),
    ],
)
def test_why_nothing_enforces_a_maximum(
    most: int,
    delay: int,
    on: bool,  # noqa: FBT001
    expected: WhyNot | None,
) -> None:
    clock = Clock.of(queue(most={"memory": most}, delay=delay), on=on, memory=80)
    partition = clock.cluster.partition
    assert quota_timers.why_not(partition, partition.queues["root.a"]) is expected


def test_a_timer_or_a_run_enforces_it() -> None:
    clock = armed()
    partition = clock.cluster.partition
    assert quota_timers.why_not(partition, partition.queues["root.a"]) is None
    clock.begin()
    quota_timers.strike(partition, "root.a")
    assert quota_timers.why_not(partition, partition.queues["root.a"]) is None
