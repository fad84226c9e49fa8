"""The simulation of asks that were not submitted. No function changes the state.

Between ticks, the simulation plans on a snapshot and a Trial, with the same planners as live decisions (design 6.12).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from server.core.core import Core
from server.core.queries import simulated_gangs, simulation_answers
from server.core.queries.group_fit import person_limits
from server.core.queries.large_enough import excluded
from server.core.queries.simulated_gangs import Simulation
from server.core.queries.simulation_answers import SimulatedAsk
from server.model.asks import AskSpec, HostPort, gang_class
from server.model.fit import Demand, fits
from server.model.reasons import Code
from server.preemption.trial import Trial
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import ClassFacts, WaitingAsk
from server.state import snapshotting
from server.state.constraints import port_units
from server.state.partition import Partition

# Asks ---------------------------------------------------------------------------------------------------------------


def prepared(core: Core, partition: str, asks: Sequence[SimulatedAsk], now: int) -> Simulation:
    """Return a simulation of the asks, in which equal asks are grouped.

    Raise KeyError for an unknown partition.

    Only this function reads the state. First it sets the partition's ``disruptions`` to the numbers that the manager reported
    last. All later steps of the simulation read the snapshot.
    """
    state = core.state.partitions[partition]
    state.disruptions = core.state.disruptions(state)
    kinds: dict[AskSpec, ClassFacts] = {}
    asks = simulated_gangs.sized(state, _named(state, asks))
    read = [_read(state, kinds, ask, number, now) for number, ask in enumerate(asks, start=1)]
    trial = Trial(_with_asks(snapshotting.take(state, now), read))
    gangs = simulated_gangs.whole(state, asks, read)
    people = {
        one.application_id: person_limits(state.applications.get(one.application_id))
        for one in asks
    }
    kept_from = {
        spec: excluded(state, spec.constraints, kind.node_demand) for spec, kind in kinds.items()
    }
    return Simulation(trial, list(zip(asks, read, strict=True)), gangs, people, kept_from)


def _named(partition: Partition, asks: Sequence[SimulatedAsk]) -> list[SimulatedAsk]:
    """Return the asks with unique keys.

    The key of an ask is the name that the caller passed. If the name is missing or in use, a name with a number is the key.
    """
    taken, named = set[str](), list[SimulatedAsk]()
    for number, ask in enumerate(asks, start=1):
        key = ask.key or f"{simulation_answers.NAME}-{number}"
        if key in partition.asks or key in taken:
            key = f"{key} ({number})"
        taken.add(key)
        named.append(ask._replace(key=key))
    return named


def _with_asks(snapshot: Snapshot, asks: Sequence[WaitingAsk | str]) -> Snapshot:
    """Return the snapshot with the requests of the asks added to the ``pending`` amounts of their leaves, as if the asks were waiting (W1)."""
    if not snapshot.is_shared_out:
        return snapshot
    pending = {path: list(line) for path, line in snapshot.pending.items()}
    for ask in asks:
        if isinstance(ask, WaitingAsk):
            line = pending.setdefault(ask.leaf, [0] * len(snapshot.types))
            for index, quantity in ask.kind.demand:
                line[index] += quantity
    return replace(snapshot, pending={path: tuple(line) for path, line in pending.items()})


def _read(
    partition: Partition,
    kinds: dict[AskSpec, ClassFacts],
    ask: SimulatedAsk,
    number: int,
    now: int,
) -> WaitingAsk | str:
    """Return the simulated ask in the form that waiting asks have in a snapshot.

    If the ask would not be accepted, return the reason.
    """
    queue, spec = partition.queues.get(ask.queue), ask.spec
    unknown = [name for name, _ in spec.resource if name not in partition.types.index]
    if queue is None or not queue.leaf:
        return f"there is no leaf queue {ask.queue}"
    if unknown:
        return f"no node and no queue has any {', '.join(unknown)}"
    kind = kinds.get(spec)
    if kind is None:
        kind = kinds[spec] = _kind(partition, spec, number)
    return WaitingAsk(
        key=ask.key,
        rm_id=partition.owner,
        application_id=ask.application_id,
        leaf=ask.queue,
        kind=kind,
        spec=spec,
        pending_since=now,
        arrival=number,
        code=Code.NO_NODE,
        within_limits=_within_limits(partition, ask, kind.demand),
        reserved=False,
    )


def _kind(partition: Partition, spec: AskSpec, number: int) -> ClassFacts:
    """Return the class of asks with this spec. Equal asks get the same class, so that victims are searched for only once."""
    index = partition.types.index
    demand: Demand = tuple((index[name], quantity) for name, quantity in spec.resource)
    ports = tuple(pair for port in spec.constraints.host_ports for pair in _port(partition, port))
    mask = partition.constraint_index.acquire(spec.constraints)
    try:
        allowed = snapshotting.allowed(partition, mask)
    finally:
        partition.constraint_index.release(mask)
    kind = gang_class(spec, partition.spec.preemption)
    return ClassFacts(-number, demand, demand + ports, allowed, kind)


def _port(partition: Partition, port: HostPort) -> Iterator[tuple[int, int]]:
    """Yield the pairs of type index and amount with which nodes count a host port.

    A port that no pod has requested is free on every node.
    """
    for name, quantity, _ in port_units(port):
        if name in partition.types.index:
            yield partition.types.index[name], quantity


def _within_limits(partition: Partition, ask: SimulatedAsk, demand: Demand) -> bool:
    application = partition.applications.get(ask.application_id)
    limiters = () if application is None else application.limiters
    return all(one.kind == "queue" or fits(demand, one.headroom) for one in limiters)
