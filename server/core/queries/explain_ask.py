"""The explanation of a waiting ask.

The first sentence names the first rule that keeps the ask from a node. The other sentences give further facts, the most
important fact first.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from server.core.events import gang_size
from server.core.preemption import due_gangs
from server.core.queries.fit_text import (
    fit_text,
    gang_lines,
    none_large_enough,
    none_large_enough_counted,
)
from server.core.queries.group_fit import (
    Members,
    gang_name,
    group_fit,
    is_of_placeholders,
    person_limits,
)
from server.core.queries.large_enough import excluded
from server.core.queries.queue_reports import headroom, share_ppm
from server.core.queries.user_limits import report as limit_report
from server.core.state import State
from server.core.wait_reasons import reservations
from server.core.wait_reasons.node_filters import SHORT, Tally, constraint_on, missing, tally
from server.core.wait_reasons.obstacles import Obstacles, in_the_way
from server.model.asks import UNSIZED, Constraints
from server.model.phrases import agreeing, count, listed, noun, place, quantities, quantity, span
from server.model.reasons import Code
from server.model.reports import (
    Excluded,
    Explanation,
    GroupFit,
    LevelReport,
    LimitFit,
    UserLimitReport,
)
from server.preemption.trial import Trial
from server.state import snapshotting
from server.state.applications import Ask, Gang
from server.state.commitments import Pledge
from server.state.limits import CODES, OWN, Limiter
from server.state.partition import Partition
from server.state.placeholders import PLACEHOLDERS, Hold, is_reserving
from server.state.queues import Queue
from server.state.snapshotting import first_blocker
from server.state.types import NO_LIMIT

_LIMIT_CODES = frozenset(CODES.values())


@dataclass(frozen=True, slots=True)
class Answer:
    """The state, the partition and the instant from which an explanation is made."""

    state: State
    partition: Partition
    now: int


def explain_ask(answer: Answer, ask: Ask) -> Explanation:
    """Return the explanation of a waiting ask: why it waits, its queues and limits, the nodes, and its place in the order.

    The explanation is for callers that may see the whole cluster. Its field ``brief`` is a summary for callers that may not see
    information about other users.
    """
    partition = answer.partition
    code = Obstacles(answer.state, partition).code(ask)
    only = only_node(ask.spec.constraints)
    kept_from = () if only else excluded(partition, ask.spec.constraints, ask.ask_class.node_demand)
    nodes = tally(partition, ask)
    if kept_from:
        nodes = replace(nodes, nearest=None, missing={})
    gang = _gang(answer, ask, kept_from)
    brief = _reason(answer, ask, code, nodes)
    kept = in_the_way(partition, ask)
    if code is Code.CAPACITY_RESERVED and kept:
        brief = reservations.sentence(ask, kept)
    reason = _in_full(partition, ask, code, nodes, gang) or brief
    if code is Code.NO_NODE_CAPACITY and kept_from:
        reason = none_large_enough(kept_from)
        brief = none_large_enough_counted(kept_from)
    held, limiter = ask.pledge, _limiter(ask, code)
    since = span(answer.now - ask.pending_since)
    return Explanation(
        "ask",
        ask.key,
        partition.name,
        code=code.value,
        summary=f"It has waited {since}: {reason}.",
        since_ms=ask.pending_since,
        queue=ask.application.leaf.path,
        application_id=ask.application.application_id,
        resource=dict(ask.spec.resource),
        levels=tuple(_level(partition, ask, queue) for queue in ask.application.leaf.path_up()),
        tally=nodes.counts,
        examples=nodes.examples,
        nearest="" if nodes.nearest is None else nodes.nearest.node_id,
        nearest_missing=nodes.missing,
        reserved=None
        if held is None
        else reservations.report(held, missing(partition, ask, held.node)),
        kept_off_by=tuple(map(reservations.report, kept)),
        lines=(
            f"It has waited {since}: {reason}.",
            *_facts(answer, ask, code, nodes, gang),
            *reservations.lines(ask, kept),
            *_reservation(answer, ask),
            *_ranks(partition, ask),
        ),
        priority=ask.spec.priority,
        brief=f"It has waited {since}: {brief}.",
        gang=gang,
        limit=None if limiter is None else _limit_fit(partition, ask, limiter),
        only_node=only,
        excluded=kept_from,
        limits=tuple(_user_limits(partition, ask)),
        asks_before=_asks_before(ask),
    )


def _facts(
    answer: Answer, ask: Ask, code: Code, nodes: Tally, gang: GroupFit | None
) -> Iterator[str]:
    """Yield the sentences that follow the first sentence of the explanation, each with one fact."""
    where = f"queue {ask.application.leaf.path}, application {ask.application.application_id}"
    yield (
        f"It asks for {quantities(dict(ask.spec.resource))} with priority {ask.spec.priority} in {where}."
    )
    if gang is None:
        yield from _other_limits(answer.partition, ask, code)
        yield from _node_lines(code, nodes)
    else:
        yield "Its gang is placed whole or not at all."
        yield from map(_sentence, gang_lines(gang))


# The first rule that fails --------------------------------------------------------------------------------------


def _reason(answer: Answer, ask: Ask, code: Code, nodes: Tally) -> str:
    group = ask.group
    if code is Code.NOT_SYNCED:
        return _unsynced(answer.state, answer.partition)
    if code is Code.QUEUE_STOPPED:
        return f"queue {ask.application.leaf.path} is stopped"
    if isinstance(group, Gang):
        return _of_gang(answer, group)
    if ask.pledge is not None and ask.pledge.replaces:
        return _of_replacement(ask.pledge)
    limiter = first_blocker(ask)
    if limiter is not None:
        return limit_text(answer.partition, ask, limiter)
    return _of_nodes(code, nodes)


def _in_full(
    partition: Partition, ask: Ask, code: Code, nodes: Tally, gang: GroupFit | None
) -> str:
    """Return the reason for waiting with the numbers of nodes or gang members, for callers that may see the whole cluster.

    Return "" if no such numbers belong to the reason.
    """
    if gang is not None:
        return fit_text(gang) if code in {Code.GANG_PARTIAL, Code.NOT_TRIED} else ""
    only = only_node(ask.spec.constraints)
    if only and code in {Code.NO_NODE, Code.NO_NODE_CAPACITY, Code.NO_NODE_CONSTRAINTS}:
        return _of_the_only_node(partition, only, ask, nodes)
    return ""


def only_node(constraints: Constraints) -> str:
    """Return the name of the only node on which an ask may run.

    Return "" unless the constraints name exactly one node, as the constraints of a DaemonSet pod do.
    """
    named = constraints.required_node or constraints.node_name
    if not named and len(constraints.allowed_nodes) == 1:
        (named,) = constraints.allowed_nodes
    return named


def _of_the_only_node(partition: Partition, only: str, ask: Ask, nodes: Tally) -> str:
    lead = f"node {only}, the only one it may run on,"
    node = partition.index.nodes.get(only)
    if node is None:
        return f"{lead} is not known"
    if ask.pledge is not None and ask.pledge.node is node:
        lacks = missing(partition, ask, node)
        return f"{lead} is kept for it" + (f" and still lacks {quantities(lacks)}" if lacks else "")
    if not node.is_open_to(ask.spec.constraints):
        return f"{lead} takes no placements now"
    excluded = constraint_on(partition, ask, node)
    if excluded:
        return f"{lead} is one {node_text(excluded)}"
    if not nodes.missing:
        return f"{lead} has its free capacity pledged to others"
    small = "" if "too-small" not in nodes.counts else ", also when nothing else runs there"
    return f"{lead} lacks {quantities(nodes.missing)}{small}"


# Gangs ----------------------------------------------------------------------------------------------------------


def _gang(answer: Answer, ask: Ask, kept_from: tuple[Excluded, ...]) -> GroupFit | None:
    """Return how many waiting members of the ask's gang would fit now, and the amounts that the remaining members lack.

    Return None if the ask does not wait, or has no gang.
    """
    gang, partition = ask.group, answer.partition
    if not isinstance(gang, Gang) or isinstance(gang, Hold):
        return None
    snapshot = snapshotting.take(
        partition, answer.now, due=snapshotting.Due(gangs=[due_gangs.due(gang)])
    )
    waiting = snapshot.gangs[0]
    size = 0 if waiting.size == UNSIZED else waiting.size
    members = Members(
        gang_name(gang),
        waiting.members,
        waiting.placed,
        size,
        person_limits(gang.application),
        key=gang.key,
        placeholders=is_of_placeholders(gang),
        excluded=kept_from,
    )
    return group_fit(Trial(snapshot), members)


# Limits ---------------------------------------------------------------------------------------------------------


def _unsynced(state: State, partition: Partition) -> str:
    leaving = state.leaving.get(partition.name)
    if leaving is not None:
        return f"nothing is placed while partition {partition.name} moves to cores {leaving.group}"
    late = [one.rm_id for one in state.managers.values() if not one.synced]
    return f"nothing is placed before resource manager {listed(late)} has sent everything it knows"


def _of_gang(answer: Answer, gang: Gang) -> str:
    if isinstance(gang, Hold):
        return _of_hold(gang)
    there, name = len(gang.members) + gang.placed, gang_name(gang)
    if gang in answer.partition.gangs.gathering:
        left = span(gang_size.whole_ms(answer.partition, gang) - answer.now)
        return f"{name} gathers, {count(there, 'member')} so far, and is whole in {left} unless a further one comes"
    if not gang.gathered and gang.key == PLACEHOLDERS:
        return _of_placeholders(gang)
    if not gang.gathered:
        return f"{there} of {count(gang.min_members, 'member')} of {name} {agreeing('are', there)} there"
    if gang.parked:
        return f"the {count(len(gang.members), 'waiting member')} of {name} do not fit together, and a gang is placed whole or not at all"
    return f"{name} is complete, and the next tick tries it"


def _of_placeholders(gang: Gang) -> str:
    """Return a text that says how many of the placeholders that an application declared have arrived."""
    reserve, name = gang.application.reserve, gang.application.application_id
    assert reserve is not None, "only placeholders that were declared wait for each other"
    there = [
        f"{quantity(kind, reserve.came[kind])} of {quantity(kind, much)}"
        for kind, much in reserve.wanted.items()
    ]
    have = f"{count(reserve.count, 'placeholder')} with {listed(there)}"
    return f"it waits for the remaining placeholders of application {name}: {have} came so far"


def _of_hold(hold: Hold) -> str:
    application = hold.application
    if is_reserving(application):
        return f"application {application.application_id} begins when all its placeholders have their places"
    return f"a placeholder of its task group {hold.key} holds its place, or is to, and none can be given to it now"


def _of_replacement(held: Pledge) -> str:
    going = listed(list(held.commitment.victims))
    return f"it runs on node {held.node.node_id} as soon as placeholder {going} has ended"


def limit_text(partition: Partition, ask: Ask, limiter: Limiter) -> str:
    """Return a text, for the end of a sentence, with the amounts that a limit lacks for an ask."""
    lacks = short_of(partition, ask, limiter)
    return f"{_subject(limiter)} has no headroom for it and lacks {quantities(lacks)}"


def _limiter(ask: Ask, code: Code) -> Limiter | None:
    """Return the first limit without headroom, if the reason ``code`` says that a limit keeps the ask waiting.

    Otherwise return None.
    """
    return first_blocker(ask) if code in _LIMIT_CODES else None


def _limit_fit(partition: Partition, ask: Ask, limiter: Limiter) -> LimitFit:
    lacks = short_of(partition, ask, limiter)
    return LimitFit(limiter.kind, limiter.name, limiter.queue.path, 0, lacks)


def _subject(limiter: Limiter) -> str:
    if limiter.kind == "queue":
        return f"queue {limiter.name}"
    if limiter.kind == "firm":
        return f"queue {limiter.name}, which guarantees firm pods no more (J4),"
    return f"{limiter.kind} {limiter.name} in queue {limiter.queue.path}"


def short_of(partition: Partition, ask: Ask, limiter: Limiter) -> dict[str, int]:
    """Return how much headroom a limit lacks for the ask, by type.

    The amount that the ask's own pledge keeps counts as headroom.
    """
    own = ask.pledge is not None and limiter.kind == "queue"
    names = partition.types.names
    lacks = (
        (names[at], (0 if own else wanted) - limiter.headroom_for(ask.ask_class, at))
        for at, wanted in ask.ask_class.demand
    )
    return dict(sorted((name, lack) for name, lack in lacks if lack > 0))


def _of_nodes(code: Code, nodes: Tally) -> str:
    total = sum(nodes.counts.values())
    open_nodes = total - nodes.counts.get("not-schedulable", 0)
    if code is Code.NO_NODES:
        return (
            "there are no nodes"
            if not total
            else f"none of the {count(total, 'node')} takes placements"
        )
    if code is Code.NO_NODE_CONSTRAINTS:
        return f"its constraints allow none of the {count(open_nodes, 'node')} that take placements"
    if code is Code.NO_NODE_CAPACITY:
        return "it is larger than every node that its constraints allow"
    if code is Code.NO_NODE:
        return "no node that could hold it has enough free capacity now"
    return "nothing is known against it, and the next tick tries it"


# The other facts ------------------------------------------------------------------------------------------------


def _level(partition: Partition, ask: Ask, queue: Queue) -> LevelReport:
    limiter = queue.limiter
    left = [NO_LIMIT] * len(partition.types) if limiter is None else limiter.headroom
    return LevelReport(
        path=queue.path,
        max=dict(queue.spec.max or ()),
        usage=partition.types.named(queue.usage),
        promised=partition.types.named(queue.promised),
        headroom=headroom(partition, left),
        short=() if limiter is None else _short_types(partition, ask, limiter),
    )


def _user_limits(partition: Partition, ask: Ask) -> Iterator[UserLimitReport]:
    """Yield those limits of the ask's user and group that have a maximum of resources."""
    for limiter in ask.application.limiters:
        if limiter.kind not in OWN:
            found = limit_report(partition, limiter)
            if found.max:
                yield replace(found, short=_short_types(partition, ask, limiter))


def _short_types(partition: Partition, ask: Ask, limiter: Limiter) -> tuple[str, ...]:
    """Return the types in which a limit has too little headroom for an ask, or for all waiting members of its gang together."""
    gang = ask.group
    if not isinstance(gang, Gang) or isinstance(gang, Hold):
        return tuple(short_of(partition, ask, limiter))
    wanted = Counter[int]()
    for one in gang.members:
        wanted.update(dict(one.ask_class.demand))
    names = partition.types.names
    short = (
        names[at] for at, much in wanted.items() if much > limiter.headroom_for(ask.ask_class, at)
    )
    return tuple(sorted(short))


def _other_limits(partition: Partition, ask: Ask, code: Code) -> list[str]:
    """Return sentences about the limits without headroom. The first of these limits is left out."""
    full = [
        one
        for one in ask.application.limits_of(ask.ask_class)
        if not one.has_headroom(ask.ask_class)
    ]
    if code in _LIMIT_CODES:
        full = full[1:]
    return [_sentence(f"{limit_text(partition, ask, one)} too.") for one in full]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _node_lines(code: Code, nodes: Tally) -> list[str]:
    if not nodes.counts:
        return []
    parts = [f"{number} {node_text(why)}" for why, number in nodes.counts.items()]
    lead = "Were there headroom, of" if code in _LIMIT_CODES else "Of"
    total = count(sum(nodes.counts.values()), "node")
    lines = [f"{lead} {total}: {listed(parts)}."]
    if nodes.nearest is not None and nodes.missing:
        lines.append(
            f"Nearest is node {nodes.nearest.node_id}, which lacks {quantities(nodes.missing)}."
        )
    return lines


_NODE_WORDS = {
    "fits": "with free capacity for it now",
    "not-schedulable": "not taking placements",
    "taint": "with a taint that it does not tolerate",
    "node-selector": "not matching its node selector",
    "node-affinity": "not matching its node affinity",
    "node-name": "not among the nodes that it names",
    "avoided": "avoided after a failed binding",
    "too-small": "too small even when empty",
    "host-port": "with its host port in use",
    "reserved": "with their free capacity pledged to others",
}


def node_text(why: str) -> str:
    """Return a text, for the end of a sentence about excluded nodes, that says why the nodes are excluded. ``why`` is the code of the reason."""
    return _NODE_WORDS.get(why) or f"short of {noun(why.removeprefix(SHORT))}"


def _reservation(answer: Answer, ask: Ask) -> list[str]:
    held = ask.pledge
    if held is None:
        return []
    decision = held.commitment
    since = span(answer.now - decision.created_ms)
    lacks = missing(answer.partition, ask, held.node)
    still = f"; still missing there: {quantities(lacks)}" if lacks else ""
    return [
        f"Node {held.node.node_id} has been reserved for it for {since} ({decision.policy}){still}.",
        *([f"The reservation lasts {reservations.until(held)}."] if held.is_reservation else []),
    ]


# Ranks ----------------------------------------------------------------------------------------------------------


def _ranks(partition: Partition, ask: Ask) -> list[str]:
    """Return sentences with the ranks of the ask, of its application in the queue, and of each queue among its siblings."""
    application = ask.application
    waiting = [one for one in application.leaf.applications.values() if one.asks]
    older = sum(one.number < application.number for one in waiting)
    own = (
        f"It is {place(_asks_before(ask) + 1)} of {count(len(application.asks), 'ask')} in its application, "
        f"which came {place(older + 1)} of {len(waiting)} with waiting asks in its queue."
    )
    path = application.leaf.path_up()
    return [own, *(_queue_rank(partition, one, one.parent) for one in path if one.parent)]


def _asks_before(ask: Ask) -> int:
    return sum(one.sort_key < ask.sort_key for one in ask.application.asks.values())


def _queue_rank(partition: Partition, queue: Queue, parent: Queue) -> str:
    """Return a sentence with the rank of a queue among the siblings that have waiting asks. The rank compares shares alone.

    Placement compares queues by priority first, and then by share. The rank ignores priorities, because they change with every
    placement.
    """
    rivals = [one for one in parent.children.values() if one.pending_asks]
    shares = {one.path: share_ppm(partition, one) for one in rivals}
    own = shares[queue.path]
    less = sum(_unbounded_last(other) < _unbounded_last(own) for other in shares.values())
    share = "unbounded (it uses what it should not have)" if own < 0 else f"{own / 10_000:.1f} %"
    rank = f"the {place(less + 1)} smallest" if less else "the smallest"
    return f"Queue {queue.path} has a share of {share}, {rank} of {len(rivals)} with waiting asks."


def _unbounded_last(ppm: int) -> float:
    return float("inf") if ppm < 0 else ppm
