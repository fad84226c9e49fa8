"""The table of classes that no node takes finds those that may fit, like a look at each, whatever came and went."""

import random

import pytest

from server.model.asks import UNCONSTRAINED, Constraints
from server.model.fit import fits
from server.state.constraints import NodeMask
from server.state.equivalence import AskClass
from server.state.unschedulable import GAPS_MIN, Unschedulable

SEEDS = range(20)
TYPES = 4


@pytest.mark.parametrize("seed", SEEDS)
def test_the_table_finds_what_a_look_at_each_class_finds(seed: int) -> None:
    chance = random.Random(seed)
    table, plain = Unschedulable(), dict[AskClass, None]()
    for number in range(6 * GAPS_MIN):
        ask_class = some_class(chance, number, wide=number > GAPS_MIN)
        table.add(ask_class)
        plain[ask_class] = None
        for gone in chance.sample(list(plain), min(len(plain), chance.randrange(3))):
            table.discard(gone)
            del plain[gone]
        if chance.random() < 0.1 and plain:
            again = chance.choice(list(plain))
            table.discard(again)
            table.add(again)
            del plain[again]
            plain[again] = None
        most = [chance.randrange(-2, 12) for _ in range(chance.choice((TYPES, TYPES + 1)))]
        also = chance.sample(list(plain), min(len(plain), 2))
        assert table.within(most) == [one for one in plain if fits(one.node_demand, most)]
        assert table.within(most, (*also, ask_class)) == [
            one for one in plain if fits(one.node_demand, most) or one in also or one is ask_class
        ]
        assert list(table) == list(plain)
        assert len(table) == len(plain)
        assert list(table.requiring) == [one for one in plain if one.constraints.required_node]


def some_class(chance: random.Random, number: int, *, wide: bool) -> AskClass:
    """Return a class that wants some of the types; more of them are known once the table is ``wide``."""
    known = TYPES if wide else 2
    types = sorted(chance.sample(range(known), chance.randint(1, known)))
    demand = tuple((at, chance.randrange(10)) for at in types)
    constraints = Constraints(required_node="n1") if chance.random() < 0.2 else UNCONSTRAINED
    return AskClass(number, (), demand, (), constraints, NodeMask(constraints))
