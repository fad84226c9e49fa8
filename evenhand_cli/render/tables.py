"""Tables of partitions, applications, nodes and allocations."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from evenhand.v1 import inspect_pb2
from evenhand_cli.render.amounts import NOTHING, heading, in_order, pair, phrase
from evenhand_cli.render.bars import Bar
from evenhand_cli.render.columns import Column, table
from evenhand_cli.render.words import enum_state, instant, plural, reasons, state

BAR_WIDTH = 10


def lined_up(left: Sequence[str], right: Sequence[str] = (), last: Sequence[str] = ()) -> Table:
    """An empty table: columns to the left, numbers to the right, then columns to the left again."""
    empty = Table(box=None, pad_edge=False, header_style="heading", show_edge=False)
    for name in left:
        empty.add_column(name, no_wrap=True)
    for name in right:
        empty.add_column(name, justify="right", no_wrap=True)
    for name in last:
        empty.add_column(name, overflow="fold")
    return empty


def partitions(found: Sequence[inspect_pb2.Partition]) -> Table:
    """One line a partition, and one for each resource type with its bar."""
    columns = ("nodes", "apps", "running", "waiting", "type", "used/capacity")
    drawn = lined_up(("partition", "order"), columns, ("",))
    for one in found:
        counts = one.counts
        nodes = f"{counts.nodes - counts.draining_nodes:,}/{counts.nodes:,}"
        numbers = (counts.applications, counts.allocations, counts.waiting_asks)
        cells = [one.name, one.node_sort_policy, nodes, *(f"{number:,}" for number in numbers)]
        for kind in in_order(one.capacity) or [""]:
            used = one.usage.get(kind, 0) + one.foreign_usage.get(kind, 0)
            whole = one.capacity.get(kind, 0)
            bar = Bar(used, whole, width=BAR_WIDTH)
            drawn.add_row(*cells, heading(kind), pair(kind, used, whole) if kind else "", bar)
            cells = [""] * len(cells)
    return drawn


def applications(found: Sequence[inspect_pb2.Application], width: int) -> RenderableType:
    """One line an application."""
    waits_for = [one.message or reasons(one.waiting_reasons) for one in found]
    columns = (
        Column("application", [one.application_id for one in found]),
        Column("queue", [one.queue for one in found]),
        Column("state", [state(one.state) for one in found], 2),
        Column("user", [one.user for one in found], 4),
        Column("submitted", [instant(one.submitted_at_ms) for one in found], 5),
        Column("running", [f"{one.allocations:,}" for one in found], 1, right=True),
        Column("waiting", [f"{one.asks_waiting:,}" for one in found], 1, right=True),
        Column("uses", [phrase(one.usage) for one in found], 6),
        Column("waits for", waits_for, 3),
    )
    return table(columns, width)


def nodes(found: Sequence[inspect_pb2.Node], width: int) -> RenderableType:
    """One line a node, used of capacity for each resource type."""
    kinds = in_order(kind for one in found for kind in one.capacity)
    columns = (
        Column("node", [one.node_id for one in found]),
        Column("state", [state("ready" if one.schedulable else "draining") for one in found]),
        Column("running", [f"{one.allocations:,}" for one in found], 1, right=True),
        *(
            Column(heading(kind), [_used(one, kind) for one in found], 2 + place, right=True)
            for place, kind in enumerate(kinds)
        ),
        Column("notes", [_notes(one) for one in found], 2),
    )
    return table(columns, width)


def allocations(found: Sequence[inspect_pb2.Allocation], width: int) -> RenderableType:
    """One line an allocation or a waiting ask, by its pod's name where it has one."""
    pods = [pod_name(one) for one in found]
    keys = [one.allocation_key for one in found]
    states = [enum_state(inspect_pb2.AllocationState, one.state) for one in found]
    named = [
        Column("key", keys, 9),
        Column("pod", [pod or key for pod, key in zip(pods, keys, strict=True)]),
    ]
    columns = (
        *(named if any(pods) else [Column("key", keys)]),
        Column("application", [one.application_id for one in found], 8),
        Column("queue", [one.queue for one in found], 3),
        Column("node", [one.node_id or NOTHING for one in found], 1),
        Column("state", states, 2),
        Column("since", [instant(one.since_ms) for one in found], 6),
        Column("priority", [str(one.priority) for one in found], 7, right=True),
        Column("resources", [phrase(one.resources) for one in found], 5),
        Column("waits for", [one.waiting_code for one in found], 1),
        Column("goes by", [one.decision_id for one in found], 2),
    )
    return table(columns, width)


def pod_name(allocation: inspect_pb2.Allocation) -> str:
    """Namespace and name of the pod behind it, as its tags tell; empty when they do not."""
    tags = allocation.tags
    name = tags.get("kubernetes.io/meta/podName", "")
    return f"{tags.get('kubernetes.io/meta/namespace', 'default')}/{name}" if name else ""


def footer(count: int, noun: str, others: Iterable[str] = ()) -> Text:
    """What stands below a table."""
    return Text(", ".join([plural(count, noun), *others]), style="faint")


def _used(node: inspect_pb2.Node, kind: str) -> str:
    if kind not in node.capacity:
        return "-"
    return pair(
        kind, node.usage.get(kind, 0) + node.foreign_usage.get(kind, 0), node.capacity[kind]
    )


def _notes(node: inspect_pb2.Node) -> str:
    facts: Mapping[str, int] = {
        "foreign": node.foreign_allocations,
        "reservation": node.reservations,
        "taint": len(node.taints),
    }
    return ", ".join(
        f"{count} {noun}" if noun == "foreign" else plural(count, noun)
        for noun, count in facts.items()
        if count
    )
