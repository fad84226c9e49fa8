"""Weighted shares (W1 to W10): three queues step by step, and how demand changes their shares."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from server.model.quota import QueueSpec
from server.preemption.proportion import Proportion, ShareLevel, proportion
from server.snapshot.queues import QueueFacts
from tests.preemption.clusters import Cluster

TYPES = ("cpu", "memory")
Amounts = tuple[int, ...]
NOTHING = (0, 0)


class Queue(NamedTuple):
    """A leaf below root unless its path or children say otherwise; amounts are cpu and memory."""

    path: str
    weight: int = 1
    used: Amounts = NOTHING
    pending: Amounts = NOTHING
    releasing: Amounts = NOTHING
    promised: Amounts = NOTHING
    reserved: Amounts = NOTHING
    guaranteed: Amounts = NOTHING
    max: tuple[int | None, ...] = (None, None)


def facts(queues: tuple[Queue, ...]) -> dict[str, QueueFacts]:
    """Return the queues with all above them, whose usage is that of the queues below."""
    known = {one.path: one for one in queues}
    paths = {"root"} | {
        ".".join(one.path.split(".")[: depth + 1])
        for one in queues
        for depth in range(one.path.count(".") + 1)
    }
    found = dict[str, QueueFacts]()
    for number, path in enumerate(sorted(paths, key=lambda one: (-one.count("."), one))):
        own = known.get(path, Queue(path))
        below = [one for other, one in found.items() if other.rpartition(".")[0] == path]
        used, releasing, promised, reserved = (
            tuple(map(sum, zip(line, *others, strict=True)))
            for line, others in (
                (own.used, [one.usage for one in below]),
                (own.releasing, [one.releasing for one in below]),
                (own.promised, [one.promised for one in below]),
                (own.reserved, [one.reserved for one in below]),
            )
        )
        found[path] = QueueFacts(
            path=path,
            parent=path.rpartition(".")[0],
            number=number,
            leaf=not below,
            managed=True,
            stopped=False,
            guaranteed=own.guaranteed,
            max=own.max,
            deserved=None,
            usage=used,
            releasing=releasing,
            promised=promised,
            reserved=reserved,
            commitments=0,
            spec=QueueSpec(name=path.rpartition(".")[2], weight=own.weight),
        )
    return found


def shared(total: Amounts, *queues: Queue, demand_cap: bool = True) -> Proportion:
    """Return what the queues deserve of a total."""
    pending = {one.path: one.pending for one in queues}
    return proportion(facts(queues), pending, total, demand_cap=demand_cap)


def deserved(found: Proportion, *names: str) -> list[Amounts]:
    return [found.of(f"root.{name}").deserved for name in names]


def told(found: Proportion, name: str) -> tuple[Amounts, Amounts]:
    """Allocated and Preempting."""
    standing = found.standings()[f"root.{name}"]
    return standing.allocated, standing.preempting


# Seed 004's tables, cpu and memory (W1) ----------------------------------------------------------------------------

TOTAL = (9, 27)


def plain(*queues: Queue) -> Proportion:
    """Plain weight shares, as in the seed."""
    return shared(TOTAL, *queues, demand_cap=False)


def test_first_table_two_queues_race_and_one_is_over() -> None:
    """Weights 2 and 4 of 9 cpu and 27 memory; 10 cpu are used of 9: while the clean-up runs A = D (W3)."""
    found = plain(Queue("root.q1", 2, (5, 3)), Queue("root.q2", 4, (5, 3)))
    assert deserved(found, "q1", "q2") == [(3, 9), (6, 18)]
    assert told(found, "q1") == ((3, 9), (0, 0))
    assert told(found, "q2") == ((6, 18), (0, 0))
    sides = {path: one.sides for path, one in found.standings().items()}
    assert sides["root.q1"] == (ShareLevel.OVER, ShareLevel.EVEN)
    assert sides["root.q2"] == (ShareLevel.EVEN, ShareLevel.EVEN)


def test_first_table_while_the_pod_is_still_going() -> None:
    """Pod-1 of queue 1 was ordered to end: what it still has is on its way to queue 2 (W5)."""
    found = plain(Queue("root.q1", 2, (5, 3), releasing=(2, 1)), Queue("root.q2", 4, (5, 3)))
    assert told(found, "q1") == ((3, 9), (0, 0))
    assert told(found, "q2") == ((5, 18), (1, 0))


def test_second_table_pod_1_is_gone() -> None:
    found = plain(Queue("root.q1", 2, (3, 2)), Queue("root.q2", 4, (5, 3)))
    assert told(found, "q1") == ((3, 9), (0, 0))
    assert told(found, "q2") == ((6, 18), (0, 0))


def test_third_table_a_third_queue_comes() -> None:
    """Weights 2, 4, 3: everybody deserves its share of everything, queue 3 without a pod too."""
    found = plain(Queue("root.q1", 2, (3, 2)), Queue("root.q2", 4, (5, 3)), Queue("root.q3", 3))
    assert deserved(found, "q1", "q2", "q3") == [(2, 6), (4, 12), (3, 9)]
    assert all(found.entitled(path) == found.of(path).deserved for path in facts_of(found))
    sides = {path: one.sides for path, one in found.standings().items()}
    assert sides["root.q1"] == (
        ShareLevel.OVER,
        ShareLevel.EVEN,
    )  # case 01.2 in cpu, 01.1 in memory
    assert sides["root.q2"] == (ShareLevel.OVER, ShareLevel.EVEN)
    assert sides["root.q3"] == (ShareLevel.EVEN, ShareLevel.EVEN)  # it has no demand


def test_fourth_table_what_the_third_queue_has_at_once_and_what_is_coming() -> None:
    found = plain(
        Queue("root.q1", 2, (3, 2), releasing=(1, 1)),
        Queue("root.q2", 4, (5, 3), releasing=(1, 1)),
        Queue("root.q3", 3, pending=(3, 3)),
    )
    assert told(found, "q1") == ((2, 6), (0, 0))
    assert told(found, "q2") == ((4, 12), (0, 0))
    assert told(found, "q3") == ((1, 9), (2, 0))
    assert found.standings()["root.q3"].sides == (ShareLevel.UNDER, ShareLevel.UNDER)


def test_fourth_table_between_the_two_victims() -> None:
    """When one of the two is gone, one of the two cpus is no longer on its way."""
    found = plain(
        Queue("root.q1", 2, (2, 1)),
        Queue("root.q2", 4, (5, 3), releasing=(1, 1)),
        Queue("root.q3", 3, pending=(3, 3)),
    )
    assert told(found, "q3") == ((2, 9), (1, 0))


def test_last_table_both_victims_are_gone() -> None:
    found = plain(Queue("root.q1", 2, (2, 1)), Queue("root.q2", 4, (4, 2)), Queue("root.q3", 3))
    assert told(found, "q1") == ((2, 6), (0, 0))
    assert told(found, "q2") == ((4, 12), (0, 0))
    assert told(found, "q3") == ((3, 9), (0, 0))


def test_the_victims_may_go_and_a_larger_one_may_not() -> None:
    """Queue 1 has 3 of the 2 cpu that it deserves: a pod of 1 leaves 2, pod-2 would leave 1 (W1)."""
    found = plain(Queue("root.q1", 2, (3, 2)), Queue("root.q2", 4, (5, 3)), Queue("root.q3", 3))
    assert found.entitled("root.q1") == (2, 6)
    assert 3 - 1 >= found.entitled("root.q1")[0] > 3 - 2


def facts_of(found: Proportion) -> list[str]:
    return list(found.standings())


# With demand counted (the default) ----------------------------------------------------------------------------------

Q1, Q2 = Queue("root.q1", 2, (3, 2)), Queue("root.q2", 4, (5, 3))


@pytest.mark.parametrize(
    ("wants", "cpu", "contended"),
    [
        pytest.param(0, (3, 5, 0), False, id="the third queue is idle: nobody has too much"),
        pytest.param(1, (3, 5, 1), False, id="it wants the one that is left"),
        pytest.param(3, (2, 4, 3), True, id="it wants its share: as in the document"),
        pytest.param(9, (2, 4, 3), True, id="it wants all: its share and no more"),
    ],
)
def test_what_the_third_queue_wants(wants: int, cpu: Amounts, contended: bool) -> None:  # noqa: FBT001
    third = Queue("root.q3", 3, pending=(wants, wants))
    found = shared(TOTAL, Q1, Q2, third)
    assert tuple(one[0] for one in deserved(found, "q1", "q2", "q3")) == cpu
    for name in ("q1", "q2", "q3"):
        share = found.of(f"root.{name}")
        assert share.contended == (contended, False)
        assert share.entitled == ((share.deserved[0] if contended else 0), 0)  # W2
    over = found.standings()["root.q1"].sides[0]
    assert over is (ShareLevel.OVER if contended else ShareLevel.EVEN)


def test_seventh_parts_in_millicores() -> None:
    """1, 32/7 and 24/7 cpu are 1000, 4571 and 3429 millicores: the rest of a cpu goes to the largest remainder."""
    found = shared(
        (9_000, 0),
        Queue("root.q1", 2, pending=(1_000, 0)),
        Queue("root.q2", 4, pending=(6_000, 0)),
        Queue("root.q3", 3, pending=(5_000, 0)),
    )
    assert [one[0] for one in deserved(found, "q1", "q2", "q3")] == [1_000, 4_571, 3_429]


def test_w10_a_queue_without_demand_deserves_nothing() -> None:
    found = shared((9, 27), Queue("root.q1", 2, pending=(50, 50)), Queue("root.q3", 3))
    assert deserved(found, "q1", "q3") == [(9, 27), (0, 0)]


def test_a_claimant_deserves_no_more_than_its_claim() -> None:
    """A wants 16 and two others have 8 too many each: 16 are coming, not 18 (volcano 5896)."""
    found = shared(
        (64, 0),
        Queue("root.a", 2, (16, 0), pending=(16, 0)),
        Queue("root.b", 1, (24, 0)),
        Queue("root.c", 1, (24, 0)),
    )
    assert [one[0] for one in deserved(found, "a", "b", "c")] == [32, 16, 16]
    assert told(found, "a") == ((16, 0), (16, 0))


# The terms of W1 one by one -----------------------------------------------------------------------------------------


def test_a_floor_holds_in_a_contended_type_and_the_rest_is_shared() -> None:
    found = shared(
        (10, 10),
        Queue("root.a", 1, pending=(9, 1), guaranteed=(6, 6)),
        Queue("root.b", 1, pending=(9, 1)),
    )
    assert deserved(found, "a", "b") == [(6, 1), (4, 1)]
    assert found.of("root.a").floor == (6, 1)  # no more than it wants
    assert found.of("root.a").contended == (True, False)
    assert found.entitled("root.a") == (6, 1)


def test_floors_beyond_the_share_are_scaled() -> None:
    """Nodes were lost: 20 and 10 are guaranteed of the 15 that are left."""
    found = shared(
        (15, 0),
        Queue("root.a", 1, pending=(30, 0), guaranteed=(20, 0)),
        Queue("root.b", 9, pending=(30, 0), guaranteed=(10, 0)),
    )
    assert [one[0] for one in deserved(found, "a", "b")] == [10, 5]


def test_a_maximum_caps_and_what_it_leaves_goes_to_the_others() -> None:
    found = shared(
        (12, 0),
        Queue("root.a", 1, pending=(9, 0), max=(2, None)),
        Queue("root.b", 1, pending=(9, 0)),
    )
    assert [one[0] for one in deserved(found, "a", "b")] == [2, 9]
    assert found.of("root.a").cap == (2, 0)
    assert found.of("root.a").demand == (9, 0)


def test_a_parent_wants_what_its_children_may_have() -> None:
    """The maximum of a child bounds what its parent wants of the level above."""
    found = shared(
        (20, 0),
        Queue("root.p.a", 1, pending=(50, 0), max=(3, None)),
        Queue("root.p.b", 1, pending=(4, 0)),
        Queue("root.q", 1, pending=(50, 0)),
    )
    assert found.of("root.p").demand == (7, 0)
    assert [one[0] for one in deserved(found, "p", "q", "p.a", "p.b")] == [7, 13, 3, 4]


def test_floors_of_children_count_for_their_parent() -> None:
    """A parent without a guarantee of its own has the sum of its children's floors."""
    found = shared(
        (10, 0),
        Queue("root.p.a", 1, pending=(6, 0), guaranteed=(4, 0)),
        Queue("root.p.b", 1, pending=(6, 0), guaranteed=(4, 0)),
        Queue("root.q", 9, pending=(50, 0)),
    )
    assert found.of("root.p").floor == (8, 0)
    assert [one[0] for one in deserved(found, "p", "q", "p.a", "p.b")] == [8, 2, 4, 4]


def test_a_level_may_be_contended_below_one_that_is_not() -> None:
    """A maximum of the parent makes a type scarce."""
    found = shared(
        (100, 0),
        Queue("root.p", max=(6, None)),
        Queue("root.p.a", 2, pending=(6, 0)),
        Queue("root.p.b", 1, pending=(6, 0)),
        Queue("root.q", pending=(6, 0)),
    )
    assert not found.of("root.p").contended[0]
    assert found.of("root.p.a").contended[0]
    assert [found.entitled(f"root.{one}")[0] for one in ("p", "q", "p.a", "p.b")] == [0, 0, 4, 2]


def test_demand_is_what_is_held_and_what_is_pending() -> None:
    """Terminating pods do not count, asks with promises do; a reservation gives way (C2)."""
    one = Queue("root.a", 1, (8, 0), (5, 0), releasing=(3, 0), promised=(4, 0), reserved=(1, 0))
    assert shared((100, 0), one).of("root.a").demand == (8 - 3 + 4 - 1 + 5, 0)


def test_a_total_below_nothing_is_nothing() -> None:
    """Foreign pods may occupy more than there is."""
    found = shared((-3, 5), Queue("root.a", 1, pending=(2, 2)))
    assert found.of("root.a").deserved == (0, 2)
    assert found.total == (0, 5)


def test_a_partition_that_knows_no_types_has_nothing_to_share() -> None:
    queues = [Queue(path, 1, *[()] * 7) for path in ("root", "root.a")]
    found = proportion(facts(tuple(queues)), {}, ())
    assert found.of("root.a").deserved == ()
    assert found.standings()["root.a"].allocated == ()


def test_plain_shares_respect_a_maximum_below() -> None:
    """Without the cap by demand a leaf wants without end, as far as maxima on its path let it."""
    found = shared(
        (12, 0),
        Queue("root.p.a", 1, max=(1, None)),
        Queue("root.p.b", 1, max=(2, None)),
        Queue("root.q", 1),
        demand_cap=False,
    )
    assert [one[0] for one in deserved(found, "p", "q", "p.a", "p.b")] == [3, 9, 1, 2]
    assert found.of("root.q").cap == (None, None)
    assert found.of("root.p").cap == (3, None)


def test_a_view_of_a_cluster_is_what_it_is_asked_of() -> None:
    """Two queues of a core whose weights are 1 and 3; pending asks are given."""
    cluster = Cluster(QueueSpec(name="a"), QueueSpec(name="b", weight=3))
    cluster.nodes("n", vcore=8)
    cluster.application("x", "root.a")
    cluster.existing("k1", "n", "x", vcore=6)
    snapshot = cluster.snapshot()
    at = snapshot.types.index("vcore")
    wanted = tuple(8 * (index == at) for index in range(len(snapshot.types)))
    found = proportion(snapshot.queues, {"root.b": wanted}, snapshot.capacity)
    assert [found.of(path).deserved[at] for path in ("root", "root.a", "root.b")] == [8, 2, 6]
    assert conserved(found, snapshot.queues)


def conserved(found: Proportion, queues: Mapping[str, QueueFacts]) -> bool:
    """W7: what siblings have allocated and coming is what they deserve."""
    standings = found.standings()
    sums: dict[str, list[int]] = {}
    for path, queue in queues.items():
        line = sums.setdefault(queue.parent, [0] * len(found.total))
        one, share = standings[path], found.of(path)
        for at, part in enumerate(share.deserved):
            line[at] += one.allocated[at] + one.preempting[at] - part
    return not any(map(any, sums.values()))
