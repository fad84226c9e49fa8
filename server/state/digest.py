"""The digest: one hash of all visible state of a partition. Equal states have equal digests.

The digest leaves out state that only makes the search fast (heaps, logs, parked groups), and state that can be computed from the
included state. The digest includes every order that influences decisions: the order of nodes, applications, waiting asks and
commitments.
"""

import enum
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

from server.model.asks import AskSpec
from server.model.fit import Demand
from server.state.applications import Application, Ask
from server.state.commitments import Commitment
from server.state.nodes import Foreign, Node
from server.state.partition import Partition
from server.state.queues import Queue

Record = tuple[object, ...]
"""One object as plain values. Its `repr` is the canonical text."""


def digest(partition: Partition) -> str:
    """Return the SHA-256 of the canonical text in hexadecimal. The partition is not changed."""
    text = hashlib.sha256()
    for record in records(partition):
        text.update(repr(record).encode("utf-8", "surrogatepass"))
        text.update(b"\n")
    return text.hexdigest()


def plain(value: object, omit: str = "") -> object:
    """Return a model value as nested tuples.

    If the order of a value's items has no meaning, the items are sorted. ``omit`` is the name of a field that is left out.
    """
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value):
        named = ((one.name, getattr(value, one.name)) for one in fields(value))
        return tuple((name, plain(part)) for name, part in named if name != omit)
    if isinstance(value, Mapping):
        return tuple(sorted((str(name), plain(part)) for name, part in value.items()))
    if isinstance(value, frozenset):
        return ("set", *sorted(map(repr, value)))
    if isinstance(value, (tuple, list)):
        return tuple(plain(part) for part in value)
    return value


def records(partition: Partition) -> Iterator[Record]:
    """Yield the parts of the canonical text, so that two states can be compared part by part."""
    yield "partition", partition.name, partition.retired, plain(partition.spec, omit="root")
    for queue in partition.root.walk():
        yield _queue(partition, queue)
    for node in sorted(partition.index.nodes.values(), key=lambda one: one.number):
        yield _node(partition, node)
    for application in sorted(partition.applications.values(), key=lambda one: one.number):
        yield _application(partition, application)
    yield from _asks(partition)
    for gang, since_ms in partition.gangs.gathering.items():
        yield "gathering", gang.application.application_id, gang.key, since_ms
    for key in sorted(partition.foreign.pods):
        yield _foreign(partition, partition.foreign.pods[key])
    yield from _preemption(partition)
    for key in sorted(partition.avoided):
        yield "avoided", key, tuple(partition.avoided[key].items())
    yield from _resumption(partition)
    if partition.unclassed:
        yield "unclassed", len(partition.unclassed)


def _resumption(partition: Partition) -> Iterator[Record]:
    """Yield the objects that were not reported again since a new registration, and the work that waits for the end of the sync."""
    known = partition.resumption
    if known is None:
        return
    yield "resumption", known.keeps_quota, tuple(known.announced)
    for name in ("nodes", "applications", "asks", "foreign", "unseen", "unordered"):
        yield "resumption", name, tuple(sorted(getattr(known, name)))
    yield "resumption", "grown", tuple((key, one[1]) for key, one in known.grown.items())
    yield "resumption", "withdrawn", plain(known.withdrawn)
    yield "resumption", "unchecked", plain(known.unchecked)
    yield "resumption", "vacated", tuple(sorted(known.vacated))
    yield "resumption", "timers", tuple((due, *of) for due, _, *of in known.timers)


def _preemption(partition: Partition) -> Iterator[Record]:
    """Yield open decisions in their order, and the other state on which later decisions depend."""
    for commitment in partition.decisions.open.values():
        yield _commitment(partition, commitment)
    for path in sorted(partition.quota_due):
        yield "quota due", path, partition.quota_due[path]
    for key in sorted(partition.decisions.suspended):
        yield "suspended", key, partition.decisions.suspended[key].commitment_id
    yield from _plan_checks(partition)
    yield from _rounds(partition)
    yield from _thrashing(partition)
    for line, lost in partition.lost.by_queue.lines.items():
        yield "lost work", *line, *lost
    for line, lost in partition.lost.by_owner.lines.items():
        yield "lost work of owners", *line, *lost
    yield from _shadow(partition)
    for decision_id in sorted(partition.decisions.marks):
        yield "marks", decision_id, plain(partition.decisions.marks[decision_id])


def _plan_checks(partition: Partition) -> Iterator[Record]:
    checks = partition.decisions.checks
    for check in checks.open.values():
        yield (
            "plan check",
            check.check_id,
            plain(check.about),
            check.fits,
            check.decision_id,
            check.overdue_ms,
        )
    for key, count in sorted(checks.refused.items()):
        yield "refused plan checks", key, count


def _rounds(partition: Partition) -> Iterator[Record]:
    """Yield the facts of earlier rounds that delay the next rounds of claims, and limit the releases of the next rounds (P1, P5)."""
    yield "rounds", partition.round.began_ms
    for one in partition.round.released:
        yield "released", one.began_ms, tuple(sorted(one.taken.items()))


def _shadow(partition: Partition) -> Iterator[Record]:
    """Yield the memory of a shadow, on which its next records depend."""
    known = partition.shadow
    if known is None:
        return
    yield (
        "shadow",
        known.since_ms,
        known.checked,
        known.checked_ms,
        known.forgotten,
        plain(known.told),
    )
    for key, held in known.held.items():
        yield "shadow holds", key, plain(held)
    for key, record in known.records.items():
        yield "shadow said", key, plain(record)
    for (policy, side), total in sorted(known.sums.items()):
        yield "shadow sum", policy, side, plain(total)


def _thrashing(partition: Partition) -> Iterator[Record]:
    """Yield the memory of the thrashing monitor, the oldest entries first, because the order decides which entries are forgotten first."""
    monitor = partition.thrashing
    yield "storms", monitor.total
    for name in ("deficits", "taken", "strikes", "frozen"):
        yield from (("storm", name, *one) for one in getattr(monitor, name).items())


def _queue(partition: Partition, queue: Queue) -> Record:
    named = partition.types.named
    amounts = (*map(named, (queue.usage, queue.promised, queue.releasing, queue.lost)),)
    state = (queue.leaf, queue.managed, queue.state.value)
    return (
        "queue",
        queue.path,
        state,
        plain(queue.spec, omit="children"),
        plain(amounts),
        queue.pending_asks,
    )


def _node(partition: Partition, node: Node) -> Record:
    amounts = (partition.types.named(node.capacity), partition.types.named(node.free))
    facts = (node.schedulable, node.opened, dict(node.labels), node.taints, node.attributes)
    return "node", node.node_id, node.rm_id, plain(facts), plain(amounts)


def _application(partition: Partition, application: Application) -> Record:
    facts = (application.user, application.user_groups, dict(application.tags))
    times = (
        application.submitted_ms,
        application.completing_since,
        application.reserves_from_ms,
    )
    usage = partition.types.named(application.usage)
    names = (application.application_id, application.rm_id, application.leaf.path)
    return (
        "application",
        *names,
        application.state.value,
        plain(facts),
        times,
        plain(usage),
        _reserve(application),
    )


def _reserve(application: Application) -> object:
    """Return the placeholders that the application declared, "" if it declared none."""
    known = application.reserve
    if known is None:
        return ""
    return (
        plain(known.wanted),
        plain(+known.came),
        known.style.value,
        known.timeout_ms,
        known.since_ms,
        known.count,
    )


def _asks(partition: Partition) -> Iterator[Record]:
    """Yield waiting asks in order of arrival, then allocations by key."""
    specs: dict[AskSpec, object] = {}
    waiting = [ask for ask in partition.asks.values() if ask.node is None]
    placed = [ask for ask in partition.asks.values() if ask.node is not None]
    waiting.sort(key=lambda one: one.arrival)
    placed.sort(key=lambda one: one.key)
    for ask in (*waiting, *placed):
        spec = specs.get(ask.spec)
        if spec is None:
            spec = specs[ask.spec] = plain(ask.spec)
        yield _ask(ask, spec)


def _ask(ask: Ask, spec: object) -> Record:
    held = "" if ask.pledge is None else ask.pledge.commitment.commitment_id
    return (
        "ask",
        (ask.key, ask.rm_id, ask.application.application_id, ask.generation.value, ask.tags),
        spec,
        (ask.pending_since, ask.created_ms, str(ask.code)),
        ""
        if ask.node is None
        else (
            ask.node.node_id,
            ask.placed_ms,
            ask.started_ms,
            ask.releasing,
            ask.vetoed,
            ask.going,
            ask.leaves_by,
            ask.was_brought,
        ),
        (held, ask.tried_ms, ask.wait_ms, ask.ordinary, ask.expires_ms, _refused_ms(ask)),
    )


def _refused_ms(ask: Ask) -> int:
    """Return the instant at which preemption was last refused to the waiting ask's group or gang, 0 if it was never refused."""
    return 0 if ask.group is None else ask.group.refused_ms


def _named(partition: Partition, demand: Demand) -> object:
    return tuple(sorted((partition.types.names[index], quantity) for index, quantity in demand))


def _foreign(partition: Partition, foreign: Foreign) -> Record:
    names = (foreign.key, foreign.rm_id, foreign.node.node_id)
    return "foreign", *names, foreign.static, _named(partition, foreign.demand)


def _commitment(partition: Partition, commitment: Commitment) -> Record:
    names = (commitment.commitment_id, commitment.policy, commitment.queue)
    times = (commitment.created_ms, commitment.expires_ms)
    pledges = tuple(
        (key, held.node.node_id, _named(partition, held.node_demand), held.exclusive)
        for key, held in commitment.pledges.items()
    )
    return "commitment", *names, commitment.state.value, tuple(commitment.victims), times, pledges
