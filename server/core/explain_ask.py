"""Why an ask waits: the first rule that fails, then every fact about the others, most important first."""

from dataclasses import dataclass

from server.books.applications import Ask, Job
from server.books.commitments import Pledge
from server.books.limits import CODES, Limiter
from server.books.partition import Partition
from server.books.queues import Queue
from server.books.reserves import Hold, is_reserving
from server.books.snapshot import first_blocker
from server.books.types import NO_LIMIT
from server.core import gathering
from server.core.obstacles import Obstacles
from server.core.queue_reports import headroom, share_ppm
from server.core.state import State
from server.core.tally import SHORT, Tally, missing, tally
from server.model.phrases import count, listed, place, quantities, span
from server.model.reasons import Code
from server.model.reports import Explanation, LevelReport

_LIMIT_CODES = frozenset(CODES.values())


@dataclass(frozen=True, slots=True)
class Answer:
    """What one answer is made from."""

    state: State
    partition: Partition
    now: int


def explain_ask(answer: Answer, ask: Ask) -> Explanation:
    """The whole answer for an ask that waits."""
    partition = answer.partition
    code = Obstacles(answer.state, partition).code(ask)
    nodes = tally(partition, ask)
    reason = _reason(answer, ask, code, nodes)
    held = ask.pledge
    return Explanation(
        "ask",
        ask.key,
        partition.name,
        code=code.value,
        summary=f"It has waited {span(answer.now - ask.pending_since)}: {reason}.",
        since_ms=ask.pending_since,
        queue=ask.application.leaf.path,
        application_id=ask.application.application_id,
        resource=dict(ask.spec.resource),
        levels=tuple(_level(partition, ask, queue) for queue in ask.application.leaf.path_up()),
        tally=nodes.counts,
        examples=nodes.examples,
        nearest="" if nodes.nearest is None else nodes.nearest.node_id,
        nearest_missing=nodes.missing,
        reserved_node="" if held is None else held.node.node_id,
        lines=tuple(_lines(answer, ask, code, reason, nodes)),
    )


def _lines(answer: Answer, ask: Ask, code: Code, reason: str, nodes: Tally) -> list[str]:
    since = span(answer.now - ask.pending_since)
    where = f"queue {ask.application.leaf.path}, application {ask.application.application_id}"
    return [
        f"It has waited {since}: {reason}.",
        f"It asks for {quantities(dict(ask.spec.resource))} with priority {ask.spec.priority} in {where}.",
        *_other_limits(answer.partition, ask, code),
        *_job_limits(answer.partition, ask, code),
        *_node_lines(code, nodes),
        *_reservation(answer, ask),
        *_ranks(answer.partition, ask),
    ]


# The first rule that fails --------------------------------------------------------------------------------------


def _reason(answer: Answer, ask: Ask, code: Code, nodes: Tally) -> str:
    group = ask.group
    if code is Code.NOT_SYNCED:
        return _unsynced(answer.state)
    if code is Code.QUEUE_STOPPED:
        return f"queue {ask.application.leaf.path} is stopped"
    if isinstance(group, Job):
        return _of_job(answer, group)
    if ask.pledge is not None and ask.pledge.replaces:
        return _of_replacement(ask.pledge)
    limiter = first_blocker(ask)
    if limiter is not None:
        return limit_text(answer.partition, ask, limiter)
    return _of_nodes(code, nodes)


def _unsynced(state: State) -> str:
    late = [one.rm_id for one in state.managers.values() if not one.synced]
    return f"nothing is placed before resource manager {listed(late)} has sent everything it knows"


def _of_job(answer: Answer, job: Job) -> str:
    if isinstance(job, Hold):
        return _of_hold(job)
    there = len(job.members) + job.placed
    if job in answer.partition.gathering:
        left = span(gathering.whole_ms(answer.partition, job) - answer.now)
        return f"its job {job.key} gathers, {count(there, 'member')} so far, and is whole in {left} unless a further one comes"
    if not job.gathered:
        return f"{there} of {job.min_members} members of its job {job.key} are there"
    if job.parked:
        return f"its job {job.key} is placed whole or not at all, and its {count(len(job.members), 'member')} do not fit together"
    return f"its job {job.key} is complete, and the next tick tries it"


def _of_hold(hold: Hold) -> str:
    application = hold.application
    if is_reserving(application):
        return f"application {application.application_id} begins when all its placeholders have their places"
    return f"a placeholder of its task group {hold.key} holds its place, or is to, and none can be given to it now"


def _of_replacement(held: Pledge) -> str:
    going = listed(list(held.commitment.victims))
    return f"it runs on node {held.node.node_id} as soon as placeholder {going} is gone"


def limit_text(partition: Partition, ask: Ask, limiter: Limiter) -> str:
    """What a limit lacks for an ask, as the end of a sentence."""
    lacks = short_of(partition, ask, limiter)
    return f"{_subject(limiter)} has no head-room for it and lacks {quantities(lacks)}"


def _subject(limiter: Limiter) -> str:
    if limiter.kind == "queue":
        return f"queue {limiter.name}"
    if limiter.kind == "firm":
        return f"queue {limiter.name}, which guarantees firm pods no more (J4),"
    return f"{limiter.kind} {limiter.name} in queue {limiter.queue.path}"


def short_of(partition: Partition, ask: Ask, limiter: Limiter) -> dict[str, int]:
    """By how much the room of a limit is too small, by type; an ask's own promise counts as room."""
    own = ask.pledge is not None and limiter.kind == "queue"
    names = partition.types.names
    lacks = (
        (names[at], (0 if own else wanted) - limiter.room_for(ask.ask_class, at))
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
        return "no node that could hold it has room for it now"
    return "nothing is known against it, and the next tick tries it"


# The other facts ------------------------------------------------------------------------------------------------


def _level(partition: Partition, ask: Ask, queue: Queue) -> LevelReport:
    limiter = queue.limiter
    room = [NO_LIMIT] * len(partition.types) if limiter is None else limiter.room
    return LevelReport(
        path=queue.path,
        max=dict(queue.spec.max or ()),
        usage=partition.types.named(queue.usage),
        promised=partition.types.named(queue.promised),
        headroom=headroom(partition, room),
        short=() if limiter is None else tuple(short_of(partition, ask, limiter)),
    )


def _other_limits(partition: Partition, ask: Ask, code: Code) -> list[str]:
    """Further limits that are in the way, beside the first one."""
    full = [
        one for one in ask.application.limits_of(ask.ask_class) if not one.has_room(ask.ask_class)
    ]
    if code in _LIMIT_CODES:
        full = full[1:]
    return [_sentence(f"{limit_text(partition, ask, one)} too.") for one in full]


def _job_limits(partition: Partition, ask: Ask, code: Code) -> list[str]:
    """The limits that have no room for all members of a job that is complete."""
    if code is not Code.GANG_PARTIAL or not isinstance(ask.group, Job):
        return []
    members, names, lines = ask.group.members, partition.types.names, []
    for limiter in ask.application.limits_of(ask.ask_class):
        room = list(limiter.room)
        for index, wanted in (pair for one in members for pair in one.ask_class.demand):
            room[index] -= wanted
        lacks = {name: -left for name, left in zip(names, room, strict=True) if left < 0}
        if lacks:
            lines.append(f"{_subject(limiter)} lacks {quantities(lacks)} for all members together.")
    return [_sentence(one) for one in lines]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _node_lines(code: Code, nodes: Tally) -> list[str]:
    if not nodes.counts:
        return []
    parts = [f"{number} {_in_words(why)}" for why, number in nodes.counts.items()]
    lead = "Were there head-room, of" if code in _LIMIT_CODES else "Of"
    total = count(sum(nodes.counts.values()), "node")
    lines = [f"{lead} {total}: {listed(parts)}."]
    if nodes.nearest is not None and nodes.missing:
        lines.append(
            f"Nearest is node {nodes.nearest.node_id}, which lacks {quantities(nodes.missing)}."
        )
    return lines


_NODE_WORDS = {
    "fits": "with room for it now",
    "not-schedulable": "not taking placements",
    "taint": "with a taint that it does not tolerate",
    "node-selector": "not matching its node selector",
    "node-affinity": "not matching its node affinity",
    "node-name": "not among the nodes that it names",
    "avoided": "avoided after a failed binding",
    "too-small": "too small even when empty",
    "host-port": "with its host port in use",
    "reserved": "with their room pledged to others",
}


def _in_words(why: str) -> str:
    return _NODE_WORDS.get(why) or f"short of {why.removeprefix(SHORT)}"


def _reservation(answer: Answer, ask: Ask) -> list[str]:
    held = ask.pledge
    if held is None:
        return []
    decision = held.commitment
    since = span(answer.now - decision.created_ms)
    lacks = missing(answer.partition, ask, held.node)
    still = f"; still missing there: {quantities(lacks)}" if lacks else ""
    return [
        f"Node {held.node.node_id} has been reserved for it for {since} ({decision.policy}){still}."
    ]


# Ranks ----------------------------------------------------------------------------------------------------------


def _ranks(partition: Partition, ask: Ask) -> list[str]:
    """Where the ask stands: in its application, the application in its queue, the queue among its siblings."""
    application = ask.application
    before = sum(one.sort_key < ask.sort_key for one in application.asks.values())
    waiting = [one for one in application.leaf.applications.values() if one.asks]
    older = sum(one.number < application.number for one in waiting)
    own = (
        f"It is {place(before + 1)} of {count(len(application.asks), 'ask')} in its application, "
        f"which came {place(older + 1)} of {len(waiting)} with waiting asks in its queue."
    )
    path = application.leaf.path_up()
    return [own, *(_queue_rank(partition, one, one.parent) for one in path if one.parent)]


def _queue_rank(partition: Partition, queue: Queue, parent: Queue) -> str:
    """By share alone: the priority that a queue shows changes with every placement."""
    rivals = [one for one in parent.children.values() if one.pending_asks]
    shares = {one.path: share_ppm(partition, one) for one in rivals}
    own = shares[queue.path]
    less = sum(_unbounded_last(other) < _unbounded_last(own) for other in shares.values())
    share = "unbounded (it uses what it should not have)" if own < 0 else f"{own / 10_000:.1f} %"
    rank = f"the {place(less + 1)} smallest" if less else "the smallest"
    return f"Queue {queue.path} has a share of {share}, {rank} of {len(rivals)} with waiting asks."


def _unbounded_last(ppm: int) -> float:
    return float("inf") if ppm < 0 else ppm
