"""What would happen: to asks that nobody submitted, and under a configuration that nobody applied. Changes nothing.

Both run on a View and a Trial between ticks, with the planners that decide in earnest (design 6.12).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

from server.books import quota_timers, sharing, snapshot
from server.books.constraints import port_units
from server.books.partition import Partition
from server.books.quota_timers import WhyNot
from server.core import simulated, simulated_jobs
from server.core.core import Core
from server.core.group_fit import person_limits
from server.core.simulated import SimulatedAsk
from server.core.simulated_jobs import Simulation
from server.model.asks import AskSpec, HostPort, job_class
from server.model.fit import Demand, fits
from server.model.quota import Configuration, PartitionSpec, QueueSpec
from server.model.reasons import Code
from server.model.records import AskSimulation, QueueSimulation
from server.preemption import quota_enforcement
from server.preemption.policy import Refusal, ShrinkIntent
from server.preemption.trial import Trial
from server.view.queues import QueueFacts
from server.view.view import View
from server.view.waiting import ClassFacts, WaitingAsk

# Asks ---------------------------------------------------------------------------------------------------------------


def simulate_asks(
    core: Core, partition: str, asks: Sequence[SimulatedAsk], now: int
) -> list[AskSimulation]:
    """What each of the asks would get if they came now and had waited long enough, each after those before it."""
    return list(prepared(core, partition, asks, now).answers())


def prepared(core: Core, partition: str, asks: Sequence[SimulatedAsk], now: int) -> Simulation:
    """Return the same as a simulation that is answered step by step. The books are read here and never again.

    So the answers may be taken in another thread while the core goes on (design 6.12).
    """
    books = core.state.partitions[partition]
    books.disruptions = core.state.disruptions(books)
    kinds: dict[AskSpec, ClassFacts] = {}
    asks = simulated_jobs.sized(books, _named(books, asks))
    read = [_read(books, kinds, ask, number, now) for number, ask in enumerate(asks, start=1)]
    trial = Trial(_with_asks(snapshot.take(books, now), read))
    jobs = simulated_jobs.whole(books, asks, read)
    people = {
        one.application_id: person_limits(books.applications.get(one.application_id))
        for one in asks
    }
    return Simulation(trial, list(zip(asks, read, strict=True)), jobs, people)


def _named(partition: Partition, asks: Sequence[SimulatedAsk]) -> list[SimulatedAsk]:
    """Return the asks under the names that people gave them; a name that is taken already gets a number."""
    taken, named = set[str](), list[SimulatedAsk]()
    for number, ask in enumerate(asks, start=1):
        key = ask.key or f"{simulated.NAME}-{number}"
        if key in partition.asks or key in taken:
            key = f"{key} ({number})"
        taken.add(key)
        named.append(ask._replace(key=key))
    return named


def _with_asks(view: View, asks: Sequence[WaitingAsk | str]) -> View:
    """What they want counts, as if they were waiting (W1)."""
    if not view.is_shared_out:
        return view
    pending = {path: list(line) for path, line in view.pending.items()}
    for ask in asks:
        if isinstance(ask, WaitingAsk):
            line = pending.setdefault(ask.leaf, [0] * len(view.types))
            for index, quantity in ask.kind.demand:
                line[index] += quantity
    return replace(view, pending={path: tuple(line) for path, line in pending.items()})


def _read(
    partition: Partition,
    kinds: dict[AskSpec, ClassFacts],
    ask: SimulatedAsk,
    number: int,
    now: int,
) -> WaitingAsk | str:
    """The ask as if it had waited long enough already, or why it would not be taken in."""
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
    """The class of asks with this spec; equal ones share the search for victims."""
    index = partition.types.index
    demand: Demand = tuple((index[name], quantity) for name, quantity in spec.resource)
    ports = tuple(pair for port in spec.constraints.host_ports for pair in _port(partition, port))
    mask = partition.constraint_index.acquire(spec.constraints)
    try:
        allowed = snapshot.allowed(partition, mask)
    finally:
        partition.constraint_index.release(mask)
    kind = job_class(spec, partition.spec.preemption)
    return ClassFacts(-number, demand, demand + ports, allowed, kind)


def _port(partition: Partition, port: HostPort) -> Iterator[tuple[int, int]]:
    """A port as the nodes know it; one that no pod ever asked for is free everywhere."""
    for name, quantity, _ in port_units(port):
        if name in partition.types.index:
            yield partition.types.index[name], quantity


def _within_limits(partition: Partition, ask: SimulatedAsk, demand: Demand) -> bool:
    application = partition.applications.get(ask.application_id)
    limiters = () if application is None else application.limiters
    return all(one.kind == "queue" or fits(demand, one.room) for one in limiters)


# Configurations -----------------------------------------------------------------------------------------------------


def simulate_configuration(
    core: Core, configuration: Configuration, now: int
) -> dict[str, list[QueueSimulation]]:
    """By partition the queues that would be over their maximum, and what would be enforced, when and on whom."""
    by_partition = prepared_configuration(core, configuration, now)
    return {name: list(queues) for name, queues in by_partition.items()}


def prepared_configuration(
    core: Core, configuration: Configuration, now: int
) -> dict[str, Iterator[QueueSimulation]]:
    """The same, a queue at a time as they are taken. The books are read here and never again (see `prepared`)."""
    found: dict[str, Iterator[QueueSimulation]] = {}
    for spec in configuration.partitions:
        books = core.state.partitions.get(spec.name)
        if books is not None:
            books.disruptions = core.state.disruptions(books)
            found[spec.name] = _under(books, spec, now)
    return found


def _under(partition: Partition, spec: PartitionSpec, now: int) -> Iterator[QueueSimulation]:
    """The queues over their new maxima in the order in which their runs would begin (Q6), the others last."""
    specs = dict(quota_timers.specs(spec))
    trial = Trial(_view(partition, spec, specs, now))
    queues = [_timer(partition, spec, path, one, now) for path, one in specs.items()]
    over = [one for one in queues if one is not None]
    over.sort(key=lambda one: (one.due_ms or 1 << 62, -one.queue.count("."), one.queue))
    return (_run(trial, one) for one in over)


def _view(partition: Partition, spec: PartitionSpec, specs: dict[str, QueueSpec], now: int) -> View:
    """What stands now under another tree; queues that it does not have keep theirs."""
    view = snapshot.take(partition, now)
    queues = {
        path: _facts(view, facts, specs[path]) if path in specs else facts
        for path, facts in view.queues.items()
    }
    return replace(
        view,
        queues=MappingProxyType(queues),
        settings=spec.preemption,
        pending=sharing.pending(partition),
        total=sharing.total(partition),
        whole=sharing.whole(partition),
    )


def _facts(view: View, facts: QueueFacts, spec: QueueSpec) -> QueueFacts:
    guaranteed, most = dict(spec.guaranteed), dict(spec.max or ())
    bounds = tuple(most.get(name) if facts.parent else None for name in view.types)
    return replace(
        facts,
        guaranteed=tuple(guaranteed.get(name, 0) for name in view.types),
        max=bounds,
        deserved=None,
        spec=spec,
    )


def _timer(
    partition: Partition, spec: PartitionSpec, path: str, after: QueueSpec, now: int
) -> QueueSimulation | None:
    """When the queue's run would begin, or why it would not; None: it is not over."""
    queue = partition.queues.get(path)
    over = quota_timers.over(partition, queue, after) if queue is not None else ()
    if queue is None or not over:
        return None
    index, most = partition.types.index, dict(after.max or ())
    target = {
        name: queue.usage[index[name]] - queue.releasing[index[name]] - most[name] for name in over
    }
    delay = after.properties.quota_delay_ms
    known = QueueSimulation(path, target, delay, 0)
    if not spec.preemption.quota_enabled:
        return replace(known, why_not=WhyNot.SWITCHED_OFF.value)
    if not delay:
        return replace(known, why_not=WhyNot.NO_DELAY.value)
    due = _due(partition, path, after, over, now)
    return replace(known, due_ms=due) if due else replace(known, why_not=WhyNot.SPENT.value)


def _due(partition: Partition, path: str, after: QueueSpec, over: tuple[str, ...], now: int) -> int:
    if not partition.spec.preemption.quota_enabled:
        return now + after.properties.quota_delay_ms  # Q3: turning the switch on arms all
    before = partition.queues[path]
    due, _ = quota_timers.rearm(
        before.spec if before.managed else None,
        after,
        over=over,
        due_ms=partition.quota_due.get(path),
        now=now,
    )
    return due or 0


def _run(trial: Trial, known: QueueSimulation) -> QueueSimulation:
    """What the run would do, after those before it. Without a run nobody goes."""
    if not known.due_ms:
        return known
    answer = quota_enforcement.plan(trial, ShrinkIntent(quota_enforcement.NAME, known.queue))
    if isinstance(answer, Refusal):
        return replace(known, shrink=answer.shrink)
    trial.apply(answer)
    return replace(known, victims=simulated.victims(trial, answer), shrink=answer.shrink)
