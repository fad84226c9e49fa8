"""A real cluster's data in the core: each pod gets a node or a correct reason, and the state is always consistent."""

import itertools
from typing import NamedTuple

import pytest

from server.core.core import Core
from server.core.queries import inspect
from server.model.decisions import Placed
from server.model.events import AskAdded
from server.model.reports import NodeReport
from tests.realdata import openb

NOW = 1_700_000_000_000
BATCH = 1_000


def _feed(core: Core, asks: list[AskAdded]) -> dict[str, str]:
    """Hand over the asks in batches, ticking in between; gives the node of each placed ask."""
    placed: dict[str, str] = {}
    now = NOW
    for start in range(0, len(asks), BATCH):
        for ask in itertools.islice(asks, start, start + BATCH):
            assert core.handle(ask, now) == []
        more = True
        while more:
            tick = core.tick(now)
            placed.update(
                (one.key, one.node_id) for one in tick.decisions if isinstance(one, Placed)
            )
            core.validate()
            more = tick.more
        now += 100
    return placed


def _could_take(node: NodeReport, ask: AskAdded) -> bool:
    """By hand: free capacity in every type, and the model that it wants."""
    selector = ask.spec.constraints.node_selector
    return all(node.free.get(name, 0) >= quantity for name, quantity in ask.spec.resource) and all(
        node.labels.get(key) == value for key, value in selector
    )


class Placement(NamedTuple):
    """The cluster after all pods came, with the node of each placed one."""

    core: Core
    asks: list[AskAdded]
    placed: dict[str, str]


@pytest.fixture(scope="module")
def placement() -> Placement:
    """Provide the whole trace run through the core, the invariants checked after every tick."""
    core = Core()
    for event in openb.set_up():
        core.handle(event, NOW)
    asks = openb.asks()
    return Placement(core, asks, _feed(core, asks))


def test_every_pod_is_placed_or_fits_nowhere(placement: Placement) -> None:
    """1,523 nodes, 8,152 pods, more GPUs wanted than there are."""
    waiting = [ask for ask in placement.asks if ask.key not in placement.placed]
    assert len(placement.asks) == 8_152
    assert 0 < len(waiting) < 2_000, "more GPUs are wanted than there are, not many more"
    nodes = inspect.nodes(placement.core, "default")
    for ask in waiting:
        assert not any(_could_take(node, ask) for node in nodes), ask.key


def test_what_waits_says_that_no_node_takes_it(placement: Placement) -> None:
    """The code of every waiting pod is one of the true ones."""
    reports = inspect.allocations(placement.core, "default", asks=True)
    codes = {one.key: one.code for one in reports if not one.node_id}
    assert codes.keys() == {ask.key for ask in placement.asks} - placement.placed.keys()
    assert set(codes.values()) <= {"no-node", "no-node-capacity", "no-node-constraints"}


def test_an_explanation_counts_every_node_once(placement: Placement) -> None:
    """The tally says of each node why it does not take the pod, and names the one that comes nearest."""
    waiting = next(ask for ask in placement.asks if ask.key not in placement.placed)
    explanation = inspect.explain(placement.core, waiting.key, NOW, "default")
    assert explanation.kind == "ask"
    assert sum(explanation.tally.values()) == 1_523
    assert explanation.nearest
