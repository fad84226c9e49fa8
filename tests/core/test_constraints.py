"""Masks keep their verdicts by kind of node, and a kind means something else when other label keys count (design 6.10)."""

from server.books.constraints import ConstraintIndex
from server.books.nodes import Node
from server.model.asks import Constraints


def wanting(key: str, value: str) -> Constraints:
    return Constraints(node_selector=((key, value),))


def node(name: str, slot: int, **labels: str) -> Node:
    made = Node("rm", name, slot, slot, [])
    made.labels = labels
    made.schedulable = True
    return made


def test_verdicts_do_not_outlive_the_label_keys_that_they_were_found_under() -> None:
    first, second = node("first", 0, a="1", m="2"), node("second", 1, m="1", z="2")
    nodes = {"first": first}
    index = ConstraintIndex(nodes)
    other = index.acquire(wanting("a", "1"))
    mask = index.acquire(wanting("m", "2"))
    assert mask.allows(first)
    index.release(other)
    nodes["second"] = second
    index.acquire(wanting("z", "2"))
    index.node_changed(second)
    assert not mask.allows(second)
    assert mask.allows(first)


def test_a_kind_is_judged_once_for_all_its_nodes() -> None:
    nodes = {f"n{at}": node(f"n{at}", at, zone="ab"[at % 2], serial=f"{at}") for at in range(10)}
    index = ConstraintIndex(nodes)
    mask = index.acquire(wanting("zone", "a"))
    assert [mask.allows(one) for one in nodes.values()] == [True, False] * 5
    assert len(mask.verdicts) == 2


def test_a_constraint_that_excludes_nodes_by_name_is_judged_for_each() -> None:
    nodes = {f"n{at}": node(f"n{at}", at) for at in range(3)}
    mask = ConstraintIndex(nodes).acquire(Constraints(excluded_nodes=("n1",)))
    assert [mask.allows(one) for one in nodes.values()] == [True, False, True]
