"""Why these victims and no others: each victim compared with the next candidate, the chosen node with the next node."""

from dataclasses import replace

import pytest

from server.core.queries import known_decisions
from server.core.queries.why_victims import Compared, NextNode, compared, next_node
from server.model.decisions import Decided
from server.model.ranking import NOT_CHOSEN, Ranking, Rival
from server.model.records import DecisionRecord, DecisionState, Victim
from tests.preemption.clusters import Cluster, leaf

KEYS = ("protection", "priority")


def record(*keys: str) -> DecisionRecord:
    of = {"opted_out": False, "originator": False, "because": ""}
    victims = tuple(Victim(key, "app", "root.a", "n1", (), 0, **of) for key in keys)  # type: ignore[arg-type]
    return DecisionRecord(
        "g-1-1", "guaranteed", "default", 1, DecisionState.ORDERED, "s", victims=victims
    )


def ranking(*candidates: tuple[int, int, str], **more: object) -> Ranking:
    queues = ["root.a"] * len(candidates)
    total = int(str(more.pop("total", len(candidates))))
    return Ranking(KEYS, candidates, queues, total, **more)  # type: ignore[arg-type]


def test_a_victim_is_compared_with_the_next_that_stays() -> None:
    order = ranking((0, 5, "c"), (0, 1, "a"), (0, 3, "b"))
    assert compared(record("a", "b"), order, "a") == Compared(
        "a", 1, 3, "c", 3, "priority", own=5, other=1
    )


def test_equal_candidates_differ_in_their_allocation_key() -> None:
    order = ranking((0, 1, "a"), (0, 1, "b"))
    found = compared(record("a"), order, "a")
    assert found == Compared("a", 1, 2, "b", 2, "allocation-key", own="b", other="a")


def test_one_that_a_rule_protects_is_not_the_next() -> None:
    order = ranking((0, 1, "a"), (0, 2, "b"), (0, 3, "c"), protected=[("b", "below-guarantee")])
    found = compared(record("a"), order, "a")
    assert found is not None
    assert (found.stays, found.stays_place) == ("c", 3)


def test_one_that_stays_before_every_victim_says_so() -> None:
    found = compared(record("b"), ranking((0, 1, "a"), (0, 2, "b")), "b")
    assert found == Compared("b", 2, 2, "a", 1, before=True)


def test_where_all_were_needed_none_stays() -> None:
    found = compared(record("a", "b"), ranking((0, 1, "a"), (0, 2, "b")), "a")
    assert found == Compared("a", 1, 2)


@pytest.mark.parametrize(("start", "expected"), [(40, Compared("x", 0, 90)), (0, None)])
def test_one_outside_the_excerpt(start: int, expected: Compared | None) -> None:
    order = ranking((0, 1, "a"), total=90, start=start)
    assert compared(record("a"), order, "x") == expected


def test_the_next_node_is_the_best_of_the_others() -> None:
    rivals = [Rival(0, 0, 5, 2, 0, "n1"), Rival(0, 0, 9, 1, 0, "n3"), Rival(0, 0, 5, 3, 0, "n2")]
    assert next_node(ranking((0, 1, "a"), judged=rivals)) == NextNode("n1", "n2", "victims", 2, 3)
    assert next_node(ranking((0, 1, "a"), judged=rivals[:1])) is None


def test_candidates_on_other_nodes_are_counted_by_queue() -> None:
    """Queues take turns on the nodes, so that their allocations do not stand side by side."""
    cluster = Cluster(replace(leaf("a"), guaranteed=(("memory", 2),)), leaf("b"), leaf("c"))
    cluster.application("claimant")
    for name in ("b", "c"):
        cluster.application(name, f"root.{name}")
    for node in ("n1", "n2", "n3"):
        cluster.nodes(node, memory=8)
        for at in range(4):
            cluster.existing(f"{node}-{at}", node, "bc"[at % 2], memory=2)
    cluster.ask("p", application="claimant", memory=2)
    cluster.tick()
    tick = cluster.core.tick(cluster.now + 60_000)
    made = [one for one in tick.decisions if isinstance(one, Decided)]
    stay = known_decisions.spared(cluster.core, made[0].record)
    others = {one.queue: one.count for one in stay if one.law == NOT_CHOSEN}
    assert others == {"root.b": 4, "root.c": 4}
