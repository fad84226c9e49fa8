"""Seeded defects: small wrong changes to ordering, head-room and books, each of which the suite must notice.

A defect is a piece of source text and what it becomes. When the text is gone because the module was rewritten,
choose the line that does the same now.
"""

from typing import Final, NamedTuple


class Defect(NamedTuple):
    """One wrong change of one module; ``first`` is the seed at which the search begins."""

    name: str
    module: str
    text: str
    wrong: str
    first: int = 0


DEFECTS: Final = (
    # Ordering.
    Defect(
        "the smallest share of all types counts, not the largest",
        "server.books.usage",
        "        if ratio > largest:",
        "        if ratio < largest:",
    ),
    Defect(
        "a priority fence is open",
        "server.model.fit",
        "    if fence:\n        return offset",
        "    if fence:\n        return priority",
    ),
    Defect(
        "priorities are not clamped",
        "server.model.fit",
        "    return min(max(priority + offset, PRIORITY_MIN), PRIORITY_MAX)",
        "    return priority + offset",
    ),
    Defect(
        "queues go by share before priority",
        "server.books.ranking",
        "        if queue.priority_first:\n            return (-child.priority, child.share, child.name",
        "        if queue.priority_first:\n            return (child.share, -child.priority, child.name",
    ),
    Defect(
        "fair applications go in the order of submission",
        "server.books.ranking",
        "            return (-application.priority, application.share, application.number, application)",
        "            return (-application.priority, application.number, 0, application)",
    ),
    Defect(
        "asks go by arrival, however long they wait",
        "server.books.ranking",
        "(-group.priority, first.pending_since, first.arrival,",
        "(-group.priority, 0, first.arrival,",
    ),
    Defect(
        "a guarantee does not measure the share",
        "server.books.tree",
        "    for name, quantity in queue.spec.guaranteed:\n        amounts[index[name]] = quantity\n    return",
        "    return",
    ),
    Defect(
        "an application's stale priority is believed",
        "server.scheduling.ordering",
        "    if group.priority != application.priority:",
        "    if group.priority > application.priority:",
    ),
    Defect(
        "binpacking takes the emptiest node",
        "server.books.nodes",
        "        return -points if self.packing else points",
        "        return points",
    ),
    Defect(
        "of equal nodes the younger one is taken",
        "server.books.nodes",
        "        entry = (self.rank(node), node.number, node)",
        "        entry = (self.rank(node), -node.number, node)",
    ),
    # Head-room.
    Defect(
        "only the lowest limit is charged",
        "server.books.usage",
        "    for limiter in application.limiters:\n        limiter.take(demand)",
        "    for limiter in application.limiters[:1]:\n        limiter.take(demand)",
    ),
    Defect(
        "the limits of users and groups are not looked at",
        "server.scheduling.cycle",
        "        if ask_class in limiter.blocked or not limiter.has_room(ask_class):",
        "        if limiter.kind == 'queue' and not limiter.has_room(ask_class):",
    ),
    Defect(
        "released head-room wakes nobody",
        "server.books.usage",
        "        limiter.give(demand)\n        relieve(partition, limiter)",
        "        limiter.give(demand)",
    ),
    Defect(
        "freed nodes wake nobody",
        "server.scheduling.cycle",
        "    if freed and partition.dead:",
        "    if len(freed) > 1 and partition.dead:",
    ),
    Defect(
        "a holder's own promise counts against it",
        "server.books.limits",
        '        if held is None or self.kind != "queue":',
        "        if held is not None or self.kind:",
        first=190,
    ),
    # Books.
    Defect(
        "what ends keeps its place on the node",
        "server.books.journal",
        "    usage.empty(partition, node, ask_class.node_demand)\n    usage.discharge",
        "    usage.discharge",
    ),
    Defect(
        "a foreign pod takes no room",
        "server.books.journal",
        "    usage.fill(partition, foreign.node, foreign.demand)",
        "    partition.index.filled(foreign.node)",
    ),
    Defect(
        "a reservation pledges nothing on its node",
        "server.books.journal",
        "    usage.fill(partition, held.node, held.node_demand)",
        "    partition.index.filled(held.node)",
    ),
    Defect(
        "a gang that fails keeps the head-room that it tried",
        "server.scheduling.gangs",
        "    for limiter in application.limiters:\n        limiter.give(ask.ask_class.demand)",
        "    assert ask.node is None",
    ),
    Defect(
        "half a gang is placed",
        "server.scheduling.gangs",
        "    return seats if len(seats) == len(job.members) else []",
        "    return seats",
    ),
    Defect(
        "NotIn wants the label to be there",
        "server.books.constraints",
        "        return value not in requirement.values",
        "        return value is not None and value not in requirement.values",
        first=200,
    ),
    Defect(
        "nodes are reserved half a second early",
        "server.preemption.reservation",
        "RESERVE_AFTER_MS: Final = 2_000",
        "RESERVE_AFTER_MS: Final = 1_500",
    ),
    Defect(
        "an ask that comes back forgets how long it has waited",
        "server.core.asks",
        "    ask.arrival = partition.arrivals\n    _respec(",
        "    ask.arrival = partition.arrivals\n    ask.pending_since = now\n    _respec(",
    ),
)
