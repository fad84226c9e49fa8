"""Tables of partitions, applications, nodes and allocations."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenhand.v1 import inspect_pb2
from evenhand_cli.render.amounts import heading, in_order, pair, phrase
from evenhand_cli.render.bars import Bar
from evenhand_cli.render.words import enum_state, instant, plural, reasons, state

BAR_WIDTH = 10
WIDE = 180
"""From this many columns on, allocations show both key and pod."""


def lined_up(left: Sequence[str], right: Sequence[str] = (), last: Sequence[str] = ()) -> Table:
    """An empty table: columns to the left, numbers to the right, then columns to the left again."""
    table = Table(box=None, pad_edge=False, header_style="heading", show_edge=False)
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    for name in last:
        table.add_column(name, overflow="fold")
    return table


def partitions(found: Sequence[inspect_pb2.Partition]) -> Table:
    """One line a partition, and one for each resource type with its bar."""
    columns = ("nodes", "apps", "running", "waiting", "type", "used/capacity")
    table = lined_up(("partition", "order"), columns, ("",))
    for one in found:
        counts = one.counts
        nodes = f"{counts.nodes - counts.draining_nodes:,}/{counts.nodes:,}"
        numbers = (counts.applications, counts.allocations, counts.waiting_asks)
        cells = [one.name, one.node_sort_policy, nodes, *(f"{number:,}" for number in numbers)]
        for kind in in_order(one.capacity) or [""]:
            used = one.usage.get(kind, 0) + one.foreign_usage.get(kind, 0)
            whole = one.capacity.get(kind, 0)
            bar = Bar(used, whole, width=BAR_WIDTH)
            table.add_row(*cells, heading(kind), pair(kind, used, whole) if kind else "", bar)
            cells = [""] * len(cells)
    return table


def applications(found: Sequence[inspect_pb2.Application]) -> Table:
    """One line an application."""
    columns = ("application", "queue", "state", "user", "submitted")
    table = lined_up(columns, ("running", "waiting"), ("uses", "waits for"))
    for one in found:
        table.add_row(
            one.application_id,
            one.queue,
            state(one.state),
            one.user,
            instant(one.submitted_at_ms),
            f"{one.allocations:,}",
            f"{one.asks_waiting:,}",
            phrase(one.usage),
            one.message or reasons(one.waiting_reasons),
        )
    return table


def nodes(found: Sequence[inspect_pb2.Node]) -> Table:
    """One line a node, used of capacity for each resource type."""
    kinds = in_order(kind for one in found for kind in one.capacity)
    table = lined_up(("node", "state"), ["running", *map(heading, kinds)], ("notes",))
    for one in found:
        table.add_row(
            one.node_id,
            state("ready") if one.schedulable else state("draining"),
            f"{one.allocations:,}",
            *(_used(one, kind) for kind in kinds),
            _notes(one),
        )
    return table


def allocations(found: Sequence[inspect_pb2.Allocation], console: Console) -> Table:
    """One line an allocation or a waiting ask; where columns are few, a pod's name without its key."""
    wide = console.width >= WIDE and any(pod_name(one) for one in found)
    keys = ("key", "pod") if wide else ("pod or key",)
    columns = (*keys, "application", "queue", "node", "state", "since")
    table = lined_up(columns, ("priority",), ("resources", "waits for"))
    for one in found:
        name = pod_name(one)
        table.add_row(
            *((one.allocation_key, name) if wide else (name or one.allocation_key,)),
            one.application_id,
            one.queue,
            one.node_id or "-",
            enum_state(inspect_pb2.AllocationState, one.state),
            instant(one.since_ms),
            str(one.priority),
            phrase(one.resources),
            one.waiting_code,
        )
    return table


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
