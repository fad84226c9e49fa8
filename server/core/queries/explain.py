"""The explanation of a key, as facts and as sentences: why an ask waits, or where an allocation runs. The state is not changed."""

from difflib import get_close_matches
from itertools import chain, islice
from typing import Final

from server.core.core import Core
from server.core.queries.explain_ask import Answer, explain_ask
from server.core.queries.explain_queue import explain_queue
from server.core.queries.naming import Namer, by_key, some_of
from server.core.queries.preference_text import preference_lines
from server.core.queries.queue_reports import compared_with, dominant_type, share_ppm
from server.core.wait_reasons.node_filters import NOT_SCHEDULABLE
from server.core.wait_reasons.obstacles import Obstacles
from server.model.phrases import agreeing, count, listed, noun, quantities, quantity, some, span
from server.model.reports import Explanation
from server.state.applications import Application, Ask
from server.state.nodes import Foreign, Node
from server.state.partition import Partition

NEAR_MAX: Final = 5
"""The largest number of near matches that an answer names."""
NEAR_AMONG: Final = 1_000
"""The largest number of keys that are compared letter by letter in the search for near matches.

Each kind of object gets an equal part of this number.
"""
SCHEDULABLE: Final = "schedulable"
NAMED_MAX: Final = 10
"""The largest number of keys that one sentence names."""
BROUGHT: Final = (
    "It ran before this core was told of it, and its shim has not sent when its pod started."
)


def explain(
    core: Core, key: str, now: int, partition: str = "", name: Namer = by_key
) -> Explanation:
    """Find the object that the key names (an ask, allocation, application, node or queue), and return an explanation of its state.

    The explanation's ``code`` says why an ask waits, in which state an application or queue is, or whether a node is
    schedulable. Without a partition, all partitions are searched, and the first partition that knows the key is used. For an
    unknown key or partition the explanation's kind is `unknown`. In sentences, asks have the names that ``name`` returns.
    """
    state = core.state
    known = state.partitions
    chosen = [known[partition]] if partition in known else list(known.values())
    if partition and partition not in known:
        why = state.why_absent(partition)
        return _unknown(key, [f"{why[0].upper()}{why[1:]}; there are {listed(sorted(known))}."])
    for one_partition in chosen:
        found = _explain_in(Answer(state, one_partition, now), key, name)
        if found is not None:
            return found
    lines = ["Nothing is known by this key: it never arrived, was refused, or has ended."]
    near = [match for one_partition in chosen for match in near_matches(one_partition, key)]
    if near:
        lines.append(f"Close to it are {some(near, NEAR_MAX)}.")
    return _unknown(key, lines)


def _unknown(key: str, lines: list[str]) -> Explanation:
    return Explanation("unknown", key, summary=lines[0], lines=tuple(lines))


def _explain_in(answer: Answer, key: str, name: Namer) -> Explanation | None:
    partition = answer.partition
    ask = partition.asks.get(key)
    if ask is not None:
        return explain_ask(answer, ask) if ask.node is None else _allocation(answer, ask, ask.node)
    if key in partition.foreign.pods:
        return _foreign(partition, partition.foreign.pods[key])
    if key in partition.applications:
        return _application(answer, partition.applications[key], name)
    if key in partition.index.nodes:
        return _node(partition, partition.index.nodes[key], name)
    queue = partition.queues.get(key.lower())
    return None if queue is None else explain_queue(partition, queue, answer.now)


def near_matches(partition: Partition, key: str) -> list[str]:
    """Return up to NEAR_MAX known keys that resemble ``key``.

    The result has the shortest keys that contain ``key``. If no key contains ``key``, the result has the most similar of
    NEAR_AMONG keys.
    """
    if not key:
        return []
    names = (
        partition.asks,
        partition.applications,
        partition.index.nodes,
        partition.foreign.pods,
        partition.queues,
    )
    holding = [name for name in chain(*names) if key in name]
    if holding:
        return sorted(holding, key=len)[:NEAR_MAX]
    among = [name for group in names for name in islice(group, NEAR_AMONG // len(names))]
    return get_close_matches(key, among, n=NEAR_MAX)


# Running allocations --------------------------------------------------------------------------------------------


def _allocation(answer: Answer, ask: Ask, node: Node) -> Explanation:
    partition, queue = answer.partition, ask.application.leaf
    since, at_the_latest = ask.runs_since
    summary = f"It has run on node {node.node_id} for {span(answer.now - since)}."
    if at_the_latest:
        summary = f"It has run on node {node.node_id} for {span(answer.now - since)} at least."
    lines = [
        summary,
        f"It uses {quantities(dict(ask.spec.resource))} in queue {queue.path}, application "
        f"{ask.application.application_id}, with priority {ask.spec.priority}.",
        *([BROUGHT] if at_the_latest else []),
        *_ending(ask),
        *preference_lines(partition, ask, node),
        _share_line(partition, ask.application),
    ]
    return Explanation(
        "allocation",
        ask.key,
        partition.name,
        summary=summary,
        since_ms=since,
        since_at_the_latest=at_the_latest,
        queue=queue.path,
        application_id=ask.application.application_id,
        node_id=node.node_id,
        resource=dict(ask.spec.resource),
        lines=tuple(lines),
        priority=ask.spec.priority,
    )


def _ending(ask: Ask) -> list[str]:
    """Return a sentence that says that the allocation is being released, and names the open decision that ordered the release.

    Return [] if the allocation is not being released.
    """
    decision = ask.released_by
    if decision is not None:
        return [f"It is being released by decision {decision.commitment_id} ({decision.policy})."]
    return ["It is being released; its end is not confirmed yet."] if ask.releasing else []


def _share_line(partition: Partition, application: Application) -> str:
    leaf = application.leaf
    ppm = share_ppm(partition, leaf)
    kind = dominant_type(partition, leaf)
    if not kind:
        return f"Queue {leaf.path} uses nothing."
    used = quantity(kind, leaf.usage[partition.types.index[kind]])
    if ppm < 0:
        return f"Queue {leaf.path} uses {used} and should have nothing of that type."
    whole = compared_with(partition, leaf, kind)
    return f"Of all types queue {leaf.path} uses {noun(kind)} the most: {used}, {ppm / 10_000:.1f} % of {whole}."


def _foreign(partition: Partition, foreign: Foreign) -> Explanation:
    names = partition.types.names
    resource = dict(sorted((names[index], amount) for index, amount in foreign.demand))
    node_id = foreign.node.node_id
    summary = f"It is a pod of another scheduler on node {node_id}."
    lines = (summary, f"It takes {quantities(resource)} there and belongs to no queue.")
    return Explanation(
        "allocation",
        foreign.key,
        partition.name,
        summary=summary,
        node_id=node_id,
        resource=resource,
        lines=lines,
        foreign=True,
    )


# Applications and nodes -----------------------------------------------------------------------------------------


def _application(answer: Answer, application: Application, name: Namer) -> Explanation:
    partition, leaf = answer.partition, application.leaf
    state = application.state.value
    usage = partition.types.named(application.usage)
    summary = f"It is {state} in queue {leaf.path}, submitted {span(answer.now - application.submitted_ms)} ago."
    lines = [
        summary,
        f"It belongs to user {application.user or '(none)'}; "
        f"{count(len(application.allocations), 'allocation')} with {quantities(usage)}, "
        f"{count(len(application.asks), 'waiting ask')}.",
    ]
    first = min(application.asks.values(), key=lambda one: one.sort_key, default=None)
    if first is not None:
        why = explain_ask(answer, first)
        lines.append(
            f"Its first waiting ask is {name(first)}: {why.summary[:1].lower()}{why.summary[1:]}"
        )
        lines += _by_code(answer, application)
    return Explanation(
        "application",
        application.application_id,
        partition.name,
        code=state,
        summary=summary,
        since_ms=application.submitted_ms,
        queue=leaf.path,
        application_id=application.application_id,
        resource=usage,
        lines=tuple(lines),
        gang_member=_gang_member(partition, application),
    )


def _gang_member(partition: Partition, named: Application) -> str:
    """Return the key of the first member of the gang that has the application's name.

    Waiting members come before running members.

    Return "" if no gang has that name.

    A gang in the named application is preferred. A gang in another application is found only while members of the gang wait.
    """
    name = named.application_id
    for application in (named, *partition.applications.values()):
        gang = application.gangs.get(name)
        if gang is not None and gang.members:
            return gang.members[0].key
    running = (ask for ask in named.allocations.values() if ask.spec.gang_key == name)
    return next((ask.key for ask in running), "")


def _by_code(answer: Answer, application: Application) -> list[str]:
    """Return a sentence that says how many of the application's asks wait for each reason, if there are several reasons."""
    obstacles = Obstacles(answer.state, answer.partition)
    counts: dict[str, int] = {}
    for ask in application.asks.values():
        code = obstacles.code(ask).value
        counts[code] = counts.get(code, 0) + 1
    if len(counts) <= 1:
        return []
    parts = [f"{number} for {code}" for code, number in sorted(counts.items())]
    return [f"Its asks wait: {listed(parts)}."]


def _node(partition: Partition, node: Node, name: Namer) -> Explanation:
    named = partition.types.named
    left = named(node.free)
    free = {kind: max(amount, 0) for kind, amount in left.items()}
    over = {kind: -amount for kind, amount in left.items() if amount < 0}
    summary = (
        "It takes placements."
        if node.schedulable
        else "It is cordoned or drained, or not enabled yet: it takes no pods but those that require it by name."
    )
    lines = [
        summary,
        f"Its capacity is {quantities(named(node.capacity))}; {quantities(free, 'are')} free.",
        *_on_node(node, name),
    ]
    if node.pledges:
        asks = [held.ask for held in node.pledges.values()]
        used = f", of which {quantities(over, 'are')} still in use" if over else ""
        lines.append(f"Capacity here is pledged to {some_of(asks, NAMED_MAX, name)}{used}.")
    elif over:
        lines.append(f"Its pods have {quantities(over)} more than its capacity.")
    if node.taints:
        lines.append(f"It has the taints {some((one.key for one in node.taints), NAMED_MAX)}.")
    return Explanation(
        "node",
        node.node_id,
        partition.name,
        code=SCHEDULABLE if node.schedulable else NOT_SCHEDULABLE,
        summary=summary,
        node_id=node.node_id,
        resource=named(node.capacity),
        lines=tuple(lines),
    )


def _on_node(node: Node, name: Namer) -> list[str]:
    """Return sentences about the pods that run on a node."""
    lines = []
    if node.allocations:
        running = some_of(list(node.allocations.values()), NAMED_MAX, name)
        verb = agreeing("run", len(node.allocations))
        lines.append(f"Here {verb} {count(len(node.allocations), 'allocation')}: {running}.")
    if node.foreign:
        lines.append(f"Other schedulers run {count(len(node.foreign), 'pod')} here.")
    return lines or ["Nothing runs here."]
