"""A real cluster through the core: every pod has its node or a true reason, and the books agree after every tick."""

import itertools

from server.core import inspect
from server.core.core import Core
from server.model.asks import Constraints
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
            placed.update((one.key, one.node_id) for one in tick.decisions if isinstance(one, Placed))
            core.validate()
            more = tick.more
        now += 100
    return placed


def _could_take(node: NodeReport, ask: AskAdded) -> bool:
    """By hand: room in every type, and the model that it wants."""
    selector = ask.spec.constraints.node_selector
    return all(node.free.get(name, 0) >= quantity for name, quantity in ask.spec.resource) and all(
        node.labels.get(key) == value for key, value in selector
    )


def test_every_pod_is_placed_or_fits_nowhere() -> None:
    """1,523 nodes, 8,152 pods, more GPUs wanted than there are."""
    core = Core()
    for event in openb.set_up():
        core.handle(event, NOW)
    asks = openb.asks()
    placed = _feed(core, asks)
    waiting = [ask for ask in asks if ask.key not in placed]
    nodes = inspect.nodes(core, "default")
    assert len(placed) + len(waiting) == len(asks) == 8_152
    assert 0 < len(waiting) < 2_000, "more GPUs are wanted than there are, not many more"
    for ask in waiting:
        assert not any(_could_take(node, ask) for node in nodes), ask.key
    for key, code in _codes(core).items():
        assert key not in placed
        assert code in ("no-node", "no-node-capacity", "no-node-constraints"), key


def _codes(core: Core) -> dict[str, str]:
    reports = inspect.allocations(core, "default", asks=True)
    return {one.key: one.code for one in reports if not one.node_id}


def test_a_waiting_pod_is_explained_by_the_nodes_that_it_was_held_against() -> None:
    """The tally of nodes in an explanation covers every node once."""
    core = Core()
    for event in openb.set_up():
        core.handle(event, NOW)
    placed = _feed(core, openb.asks())
    waiting = next(ask for ask in openb.asks() if ask.key not in placed)
    explanation = inspect.explain(core, waiting.key, NOW, "default")
    assert explanation.kind == "ask"
    assert sum(explanation.tally.values()) == 1_523
    assert explanation.nearest
    assert waiting.spec.constraints != Constraints() or explanation.tally
