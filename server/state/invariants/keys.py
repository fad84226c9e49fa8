"""Checks of asks, classes and commitments: each ask is in exactly one state, and all tables with the ask's key agree."""

from collections import Counter

from server.model.asks import gang_class
from server.model.fit import Demand
from server.model.resources import Resource
from server.state.applications import Application, Ask
from server.state.commitments import Commitment, Pledge
from server.state.constraints import NodeMask, port_demand
from server.state.equivalence import AskClass, key_of
from server.state.partition import Partition


def check_keys(partition: Partition) -> None:
    """Assert that each ask waits in one application or is placed on one node.

    No foreign pod may have the key of an ask.
    """
    waiting = 0
    for key, ask in partition.asks.items():
        assert ask.key == key, f"the state has ask {ask.key} under the key {key}"
        assert key not in partition.foreign.pods, f"key {key} is an ask and a foreign pod"
        if ask.node is None:
            waiting += 1
            _check_waiting(ask)
        else:
            _check_placed(partition, ask)
    assert partition.ask_count == waiting, (
        f"partition {partition.name}: ask_count is {partition.ask_count}, {waiting} asks wait"
    )
    _check_listed(partition, waiting)
    _check_foreign(partition)


def _check_waiting(ask: Ask) -> None:
    application = ask.application
    assert application.asks.get(ask.key) is ask, (
        f"ask {ask.key} waits, but application {application.application_id} does not list it"
    )
    assert ask.group is not None, f"ask {ask.key} waits in no group or gang"
    assert not ask.releasing, f"ask {ask.key} waits and is being released"


def _check_placed(partition: Partition, ask: Ask) -> None:
    node, application = ask.node, ask.application
    assert node is not None
    where = f"allocation {ask.key} on node {node.node_id}"
    assert partition.index.nodes.get(node.node_id) is node, f"{where}: the node is gone"
    assert node.allocations.get(ask.key) is ask, f"{where}: the node does not list it"
    assert application.allocations.get(ask.key) is ask, (
        f"{where}: application {application.application_id} does not list it"
    )
    assert ask.group is None, f"{where} waits in a group too"
    assert ask.pledge is None, f"{where} holds a pledge too"
    decision = ask.released_by
    assert decision is None or decision.victims.get(ask.key) is ask, (
        f"{where} goes for a decision that does not list it"
    )


def _check_listed(partition: Partition, waiting: int) -> None:
    """Assert that every listed ask is in the table of asks.

    Each ask of the table was checked before, so that it suffices to compare the numbers of asks.
    """
    for name, application in partition.applications.items():
        _check_application(partition, name, application)
    listed = sum(len(one.asks) for one in partition.applications.values())
    assert listed == waiting, f"applications list {listed} asks, {waiting} wait"
    placed = len(partition.asks) - waiting
    listed = sum(len(one.allocations) for one in partition.applications.values())
    assert listed == placed, f"applications list {listed} allocations, {placed} are placed"
    listed = sum(len(node.allocations) for node in partition.index.nodes.values())
    assert listed == placed, f"nodes list {listed} allocations, {placed} are placed"


def _check_application(partition: Partition, name: str, application: Application) -> None:
    assert application.application_id == name, (
        f"application {application.application_id} stands as {name}"
    )
    leaf = application.leaf
    assert partition.queues.get(leaf.path) is leaf, (
        f"application {name} is in queue {leaf.path}, which is gone"
    )
    assert leaf.applications.get(name) is application, (
        f"queue {leaf.path} does not list application {name}"
    )


def _check_foreign(partition: Partition) -> None:
    for key, foreign in partition.foreign.pods.items():
        node = foreign.node
        assert foreign.key == key, f"foreign pod {foreign.key} stands as {key}"
        assert partition.index.nodes.get(node.node_id) is node, (
            f"foreign pod {key} is on node {node.node_id}, which is gone"
        )
        assert node.foreign.get(key) is foreign, (
            f"node {node.node_id} does not list foreign pod {key}"
        )
    listed = sum(len(node.foreign) for node in partition.index.nodes.values())
    assert listed == len(partition.foreign.pods), (
        f"nodes list {listed} foreign pods, there are {len(partition.foreign.pods)}"
    )


# Classes --------------------------------------------------------------------------------------------------------


def class_name(ask_class: AskClass) -> str:
    """Return the name of a class for messages."""
    asks = ", ".join(f"{name} {quantity}" for name, quantity in ask_class.resource)
    return f"class {ask_class.number} ({asks or 'nothing'})"


def live_classes(partition: Partition) -> list[AskClass]:
    """Return the classes of all asks and allocations, in the order in which the table of asks names them first."""
    return list(dict.fromkeys(ask.ask_class for ask in partition.asks.values()))


def check_classes(partition: Partition) -> None:
    """Assert that each ask belongs to its equivalence class, and that the counts, masks and unschedulable classes agree."""
    asks = Counter(ask.ask_class for ask in partition.asks.values())
    pending = Counter(ask.ask_class for ask in partition.asks.values() if ask.node is None)
    for ask_class in asks:
        _check_class(partition, ask_class, asks[ask_class], pending[ask_class])
    for ask in partition.asks.values():
        _check_membership(partition, ask)
    shared = [one for one in asks if one.pledge is None]
    assert len(shared) == len(partition.classes.by_key), (
        f"partition {partition.name} lists {len(partition.classes.by_key)} classes, {len(shared)} have asks"
    )
    live = sum(count for one, count in pending.items() if not one.dead)
    assert partition.classes.live_asks == live, (
        f"live_asks of partition {partition.name} is {partition.classes.live_asks}, not {live}"
    )
    groups = sum(len(application.groups) for application in partition.applications.values())
    assert partition.classes.groups == groups, (
        f"partition {partition.name} counts {partition.classes.groups} groups of waiting asks, there are {groups}"
    )
    dead = [one for one in asks if one.dead]
    assert len(dead) == len(partition.classes.dead), (
        f"{len(partition.classes.dead)} classes are listed as dead, {len(dead)} are"
    )
    _check_masks(partition, Counter(one.mask for one in asks))


def _check_class(partition: Partition, ask_class: AskClass, asks: int, pending: int) -> None:
    name = class_name(ask_class)
    assert ask_class.asks == asks, f"{name} counts {ask_class.asks} asks, there are {asks}"
    assert ask_class.pending == pending, (
        f"{name} counts {ask_class.pending} pending asks, there are {pending}"
    )
    assert ask_class.dead == (ask_class in partition.classes.dead), (
        f"{name} and the list of the dead do not agree"
    )
    if ask_class.pledge is None:
        found = partition.classes.by_key.get(key_of(ask_class))
        assert found is ask_class, f"{name} is not listed under its values"
    demand = _demand(partition, ask_class.resource)
    assert ask_class.demand == demand, f"{name} demands {ask_class.demand}, not {demand}"
    ports = port_demand(ask_class.constraints.host_ports, partition.types)
    assert ask_class.node_demand == demand + ports, (
        f"{name} demands {ask_class.node_demand} of nodes"
    )
    assert ask_class.mask.constraints == ask_class.constraints, (
        f"{name} has the mask of other constraints"
    )


def _demand(partition: Partition, resource: Resource) -> Demand:
    index = partition.types.index
    return tuple((index[name], quantity) for name, quantity in resource)


def _check_membership(partition: Partition, ask: Ask) -> None:
    """Assert that the request, gang class and constraints of an ask are those of its equivalence class.

    A placed ask may still be in the class that it had while it waited, with constraints that exclude the nodes it avoided.
    """
    ask_class, spec = ask.ask_class, ask.spec
    assert ask_class.resource == spec.resource, (
        f"ask {ask.key} of {spec.resource} is in {class_name(ask_class)}"
    )
    kind = gang_class(spec, partition.classed_by)
    assert ask_class.gang_class is kind or ask in partition.unclassed, (
        f"ask {ask.key} is in a class of {ask_class.gang_class} asks, not {kind}"
    )
    if ask.node is not None or (
        ask_class.constraints is spec.constraints and not partition.avoided
    ):
        return
    want = partition.constraints_of(spec, ask.key)
    assert ask_class.constraints == want, (
        f"ask {ask.key} is in a class of other constraints: {class_name(ask_class)}"
    )


def _check_masks(partition: Partition, users: Counter[NodeMask]) -> None:
    for mask, count in users.items():
        found = partition.constraint_index.masks.get(mask.constraints)
        assert found is mask, f"the mask of {mask.constraints} is not listed"
        assert mask.users == count, (
            f"the mask of {mask.constraints} counts {mask.users} classes, there are {count}"
        )
    masks = partition.constraint_index.masks
    assert len(masks) == len(users), f"{len(masks)} masks are listed, {len(users)} have users"


# Commitments ----------------------------------------------------------------------------------------------------


def check_commitments(partition: Partition) -> None:
    """Assert that open decisions, pledges, nodes and asks refer to each other.

    A victim has only one decision (invariant 10).
    """
    victims: Counter[str] = Counter()
    for name, commitment in partition.decisions.open.items():
        _check_commitment(partition, name, commitment)
        victims.update(list(commitment.victims))
    twice = sorted(key for key, count in victims.items() if count > 1)
    assert not twice, f"allocations {twice} are victims of more than one open decision"
    for key, held in partition.decisions.pledges.items():
        _check_pledge(partition, key, held)
    listed = sum(len(one.pledges) for one in partition.decisions.open.values())
    assert listed == len(partition.decisions.pledges), (
        f"decisions hold {listed} pledges, there are {len(partition.decisions.pledges)}"
    )
    pledges = sum(len(node.pledges) for node in partition.index.nodes.values())
    assert pledges == len(partition.decisions.pledges), (
        f"nodes hold {pledges} pledges, there are {len(partition.decisions.pledges)}"
    )
    holders = sum(ask.pledge is not None for ask in partition.asks.values())
    assert holders == len(partition.decisions.pledges), (
        f"{holders} asks hold a pledge, there are {len(partition.decisions.pledges)}"
    )
    for node in partition.index.nodes.values():
        holds = sum(held.exclusive for held in node.pledges.values())
        assert node.holds == holds, f"node {node.node_id} counts {node.holds} holds, not {holds}"


def _check_commitment(partition: Partition, name: str, commitment: Commitment) -> None:
    what = f"commitment {name}"
    assert commitment.commitment_id == name, f"{what} calls itself {commitment.commitment_id}"
    assert commitment.state.is_open, f"{what} is {commitment.state} and still open"
    held = commitment.pledges or commitment.victims or commitment.suspended
    assert held, f"{what} holds nothing and is still open"
    for key, ask in commitment.victims.items():
        assert partition.asks.get(key) is ask, f"{what}: victim {key} is gone"
        assert ask.released_by is commitment, f"{what}: victim {key} goes for another decision"
        # In every usage, a placeholder is counted instead of the real ask that replaces it.
        assert ask.releasing != commitment.replaces, f"{what}: victim {key} is not releasing"


def _check_pledge(partition: Partition, key: str, held: Pledge) -> None:
    ask, node = held.ask, held.node
    what = f"pledge of {held.commitment.commitment_id} to {key}"
    assert held.commitment.pledges.get(key) is held, f"{what} is unknown to its decision"
    known = partition.decisions.open.get(held.commitment.commitment_id)
    assert known is held.commitment, f"{what}: commitments do not list its decision"
    assert partition.asks.get(key) is ask, f"{what} is for an ask which is gone"
    assert ask.node is None, f"{what} is for an ask which is placed"
    assert ask.pledge is held, f"{what} is unknown to its ask {ask.key}"
    assert ask.ask_class.pledge is held, f"{what}: ask {ask.key} has no class of its own"
    assert partition.index.nodes.get(node.node_id) is node, (
        f"{what} is on node {node.node_id}, which is gone"
    )
    assert node.pledges.get(ask.key) is held, f"{what} is unknown to its node {node.node_id}"
    demands = (ask.ask_class.demand, ask.ask_class.node_demand)
    if held.replaces:
        own = dict(ask.ask_class.node_demand)
        demands = ((), tuple(pair for pair in held.node_demand if pair[1] <= own.get(pair[0], 0)))
    assert (held.demand, held.node_demand) == demands, (
        f"{what} promises another demand than {ask.key}'s"
    )
