"""Masks of constraints: what they store, and that they always agree with labels, taints and names (design 6.10)."""

import random

import pytest

from server.model.asks import Constraints, Operator, Requirement, Taint, Term, Toleration
from server.state.constraints import FEW_NODES, ConstraintIndex, NodeMask, matches, tolerates
from server.state.nodes import Node

KEYS = "abc"
VALUES = "123"
MANY = 3 * FEW_NODES


def wanting(key: str, value: str) -> Constraints:
    return Constraints(node_selector=((key, value),))


def refusing(key: str, value: str) -> Constraints:
    return Constraints(required_terms=(Term((Requirement(key, Operator.NOT_IN, (value,)),)),))


def node(name: str, slot: int, **labels: str) -> Node:
    made = Node("rm", name, slot, slot, [])
    made.labels = labels
    made.schedulable = True
    return made


def index_of(*nodes: Node) -> ConstraintIndex:
    index = ConstraintIndex()
    for one in nodes:
        index.node_changed(one)
    return index


def test_a_label_key_that_nobody_mentioned_before_changes_no_other_verdict() -> None:
    first, second = node("first", 0, a="1", m="2"), node("second", 1, m="1", z="2")
    index = index_of(first)
    other = index.acquire(wanting("a", "1"))
    mask = index.acquire(wanting("m", "2"))
    assert mask.allows(first)
    index.release(other)
    index.acquire(wanting("z", "2"))
    index.node_changed(second)
    assert not mask.allows(second)
    assert mask.allows(first)


def test_a_kind_is_judged_once_for_all_its_nodes() -> None:
    nodes = [node(f"n{at}", at, zone="ab"[at % 2], serial=f"{at}") for at in range(10)]
    mask = index_of(*nodes).acquire(refusing("zone", "b"))
    assert [mask.allows(one) for one in nodes] == [True, False] * 5
    assert len(mask.verdicts) == 2


def test_a_constraint_that_excludes_nodes_by_name_is_judged_for_each() -> None:
    nodes = [node(f"n{at}", at) for at in range(3)]
    mask = index_of(*nodes).acquire(Constraints(excluded_nodes=("n1",)))
    assert [mask.allows(one) for one in nodes] == [True, False, True]


@pytest.mark.parametrize("there", [0, 1, FEW_NODES])
def test_a_value_that_few_nodes_have_costs_no_mask(there: int) -> None:
    nodes = [node(f"n{at}", at, rack="x" if at < there else "y") for at in range(MANY)]
    mask = index_of(*nodes).acquire(wanting("rack", "x"))
    assert mask.names == tuple(f"n{at}" for at in range(there))
    assert not mask.allowed
    assert not mask.verdicts


def test_a_value_that_more_nodes_get_becomes_a_mask() -> None:
    nodes = [node(f"n{at}", at, rack="x" if at < FEW_NODES else "y") for at in range(MANY)]
    index = index_of(*nodes)
    mask = index.acquire(wanting("rack", "x"))
    nodes[-1].labels = {"rack": "x"}
    index.node_changed(nodes[-1])
    assert mask.names is None
    assert [one.slot for one in nodes if mask.allows(one)] == [*range(FEW_NODES), MANY - 1]


def test_the_slot_of_a_node_that_went_allows_nobody_else() -> None:
    nodes = [node(f"n{at}", at, rack="x") for at in range(MANY)]
    index = index_of(*nodes)
    mask = index.acquire(wanting("rack", "x"))
    index.node_removed(nodes[3])
    index.node_changed(heir := node("heir", 3, rack="y"))
    assert not mask.allows(heir)
    assert mask.allows(nodes[4])


# Random lives ---------------------------------------------------------------------------------------------------------


class Counted(dict[str, str]):
    """Labels that count how often one of them is asked for."""

    asked = 0

    def get(self, key: str, default: object = None) -> str | None:  # type: ignore[override]
        """Count, and return the value."""
        self.asked += 1
        return super().get(key, default)  # type: ignore[arg-type]


def test_a_label_key_of_no_node_costs_no_pass_over_the_nodes() -> None:
    labels = Counted(a="1")
    one = node("one", 0)
    one.labels = labels
    index = index_of(one)
    asked = labels.asked
    for number in range(MANY):
        assert not index.acquire(wanting(f"unknown-{number}", "1")).allows(one)
    assert labels.asked == asked
    assert index.acquire(wanting("a", "1")).allows(one)
    assert labels.asked > asked


def looks(*wanted: Constraints) -> int:
    """Return how often labels of nodes are looked up for new constraints; nodes have a host name and one of two zones."""
    nodes = [node(f"n{at}", at) for at in range(MANY)]
    labels = [Counted(host=one.node_id, zone="ab"[one.slot % 2]) for one in nodes]
    for one, own in zip(nodes, labels, strict=True):
        one.labels = own
    index = index_of(*nodes)
    before = sum(one.asked for one in labels)
    for constraints in wanted:
        index.acquire(constraints)
    return sum(one.asked for one in labels) - before


def test_values_of_one_key_cost_one_pass_over_the_nodes() -> None:
    hosts = [wanting("host", f"n{at}") for at in range(MANY)]
    assert looks(*hosts) <= MANY + len(hosts)


def test_each_new_constraint_costs_one_pass_over_the_nodes_at_the_most() -> None:
    refused = [refusing("zone", f"z{at}") for at in range(100)]
    kinds = 2
    assert looks(*refused) <= (MANY + kinds) * len(refused)


def test_keys_are_found_also_where_nodes_carry_too_many_to_remember(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.state.labels.CARRIED_MAX", 2)
    one = node("one", 0, a="1", b="2", c="3")
    index = index_of(one)
    two = node("two", 1, d="4")
    index.node_changed(two)
    assert [index.acquire(wanting(*pair)).allows(two) for pair in ("d4", "a1", "e5")] == [
        True,
        False,
        False,
    ]


class Life:
    """An index through random nodes, changes and constraints; the plain meaning is `matches`."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.index = ConstraintIndex()
        self.nodes: dict[int, Node] = {}
        self.masks: list[NodeMask] = []

    def step(self) -> None:
        dice = self.dice
        act = dice.choice(
            [self.add, self.add, self.change, self.remove, self.want, self.want, self.leave]
        )
        act()
        for mask in self.masks:
            for one in self.nodes.values():
                want = matches(mask.constraints, one.labels, one.taints, one.node_id)
                assert mask.allows(one) == want, (mask.constraints, one.node_id, one.labels)

    def labels(self) -> dict[str, str]:
        return {key: self.dice.choice(VALUES) for key in KEYS if self.dice.random() < 0.7}

    def add(self) -> None:
        slot = next(at for at in range(len(self.nodes) + 1) if at not in self.nodes)
        self.nodes[slot] = made = node(f"n{self.dice.randrange(10**6)}", slot, **self.labels())
        self.index.node_changed(made)

    def change(self) -> None:
        if self.nodes:
            one = self.dice.choice(list(self.nodes.values()))
            one.labels = self.labels()
            one.taints = (Taint("t", "", "NoSchedule"),) if self.dice.random() < 0.3 else ()
            self.index.node_changed(one)

    def remove(self) -> None:
        if self.nodes and self.dice.random() < 0.5:
            self.index.node_removed(self.nodes.pop(self.dice.choice(list(self.nodes))))

    def want(self) -> None:
        self.masks.append(self.index.acquire(self.constraints()))

    def leave(self) -> None:
        if self.masks:
            self.index.release(self.masks.pop(self.dice.randrange(len(self.masks))))

    def constraints(self) -> Constraints:
        dice = self.dice
        selector = tuple((key, dice.choice(VALUES)) for key in KEYS if dice.random() < 0.3)
        terms = tuple(
            Term(tuple(self.requirement() for _ in range(dice.randint(1, 2))))
            for _ in range(dice.choice([0, 0, 1, 2]))
        )
        tolerations = (Toleration("t", "Exists"),) if dice.random() < 0.5 else ()
        excluded = tuple(one.node_id for one in self.nodes.values() if dice.random() < 0.05)
        return Constraints(selector, terms, tolerations, excluded_nodes=excluded)

    def requirement(self) -> Requirement:
        operator = self.dice.choice(list(Operator))
        values = tuple(self.dice.sample(VALUES, self.dice.randint(0, 2)))
        return Requirement(self.dice.choice(KEYS), operator, values)


@pytest.mark.parametrize("seed", range(40))
def test_masks_say_what_labels_taints_and_names_say(seed: int) -> None:
    life = Life(seed)
    for _ in range(150):
        life.step()
    while life.masks:
        life.leave()
    assert not life.index.masks


@pytest.mark.parametrize(
    ("operator", "wanted", "value", "expected"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "-1", True),
        ("Lt", "5", "5", False),
        ("Gt", "5", "many", False),
        ("Gt", "5", "+6", False),
        ("Gt", "5", "06", False),
        ("Gt", "5", "9223372036854775808", False),
        ("Gt", "5", "9223372036854775807", True),
        ("Lt", "0", "-1", True),
        ("Lt", "0", "-9223372036854775808", True),
        ("Lt", "0", "-9223372036854775809", False),
        ("Lt", "", "5", False),
    ],
)
def test_a_toleration_compares_whole_numbers(
    operator: str, wanted: str, value: str, *, expected: bool
) -> None:
    taint = Taint("load", value, "NoSchedule")
    assert tolerates(Toleration("load", operator, wanted), taint) is expected
    assert not tolerates(Toleration("other", operator, wanted), taint)
