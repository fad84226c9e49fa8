"""Tables of partitions, applications, nodes and allocations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenhand.v1 import inspect_pb2
from evenhand_cli.render.amounts import (
    FIRST_TYPES,
    NOTHING,
    amount,
    heading,
    in_order,
    pair,
    phrase,
)
from evenhand_cli.render.bars import Bar
from evenhand_cli.render.columns import ANSWER, CONTINUED, FIRST, Column, table
from evenhand_cli.render.listing import Field
from evenhand_cli.render.words import enum_state, instant, plural, reasons, state

BAR_WIDTH = 10
NORMAL = "normal"
OPTED_OUT = "prefer-not"
PROTECTIONS = (NORMAL, OPTED_OUT, "firm", "untouchable")
"""Levels of protection from preemption, the weakest first."""
WAITING_STATES = frozenset(
    {inspect_pb2.ALLOCATION_STATE_WAITING, inspect_pb2.ALLOCATION_STATE_PLEDGED}
)
"""States of an ask."""
TEXT_LEAST = 20
"""Smallest width to which reasons and notes may be folded."""


def _submitted(one: inspect_pb2.Application) -> int:
    return one.submitted_at_ms


def _running(one: inspect_pb2.Application | inspect_pb2.Node) -> int:
    return one.allocations


def _running_text(one: inspect_pb2.Node) -> str:
    return f"{one.allocations:,}"


def _waiting(one: inspect_pb2.Application) -> int:
    return one.asks_waiting


def lined_up(left: Sequence[str], right: Sequence[str] = (), last: Sequence[str] = ()) -> Table:
    """Return an empty table: columns aligned left, then columns aligned right for numbers, then columns aligned left."""
    empty = Table(box=None, pad_edge=False, header_style="heading", show_edge=False)
    for name in left:
        empty.add_column(name, no_wrap=True)
    for name in right:
        empty.add_column(name, justify="right", no_wrap=True)
    for name in last:
        empty.add_column(name, overflow="fold")
    return empty


def partitions(
    found: Sequence[inspect_pb2.Partition], width: int, *, headers: bool = True
) -> RenderableType:
    """Return a line for each partition, and a line with a bar for each resource type.

    For a user with the role of a viewer, who sees no nodes, a line below the table says so.
    """
    own = [one.visible_queue for one in found if one.visible_queue]
    drawn = table(_partitions(found), width, headers=headers)
    if not own:
        return drawn
    hidden = f"numbers of {own[0]} and below: nodes and capacity are hidden from viewers"
    return Group(drawn, Text(hidden, style="faint"))


def _partitions(found: Sequence[inspect_pb2.Partition]) -> list[Column]:
    rows = [row for one in found for row in _partition_rows(one)]
    return [replace(one, cells=[row[at] for row in rows]) for at, one in enumerate(_PARTITION)]


_PARTITION: Sequence[Column] = (
    Column("partition", (), names=True),
    Column("order", (), 5),
    Column("nodes", (), 2, right=True),
    Column("apps", (), 4, right=True),
    Column("running", (), ANSWER, right=True),
    Column("waiting", (), ANSWER, right=True),
    Column("type", (), right=True),
    Column("used/capacity", (), right=True),
    Column("", (), 3),
)


def _partition_rows(one: inspect_pb2.Partition) -> Iterator[list[RenderableType]]:
    counts = one.counts
    numbers = (counts.applications, counts.allocations, counts.waiting_asks)
    facts: list[RenderableType] = [one.name, one.node_sort_policy, _ready(one)]
    facts += [f"{each:,}" for each in numbers]
    for kind in in_order(one.usage if one.visible_queue else one.capacity) or [""]:
        used = one.usage.get(kind, 0) + one.foreign_usage.get(kind, 0)
        whole = one.capacity.get(kind, 0)
        bar = Bar(used, whole, width=BAR_WIDTH) if whole else ""
        of = f"{amount(kind, used)}/{NOTHING}" if one.visible_queue else pair(kind, used, whole)
        yield [*facts, heading(kind), of if kind else "", bar]
        facts = [CONTINUED] * len(facts)


def _ready(one: inspect_pb2.Partition) -> str:
    if one.visible_queue:
        return NOTHING
    return f"{one.counts.nodes - one.counts.draining_nodes:,}/{one.counts.nodes:,}"


PARTITIONS: Sequence[Field[inspect_pb2.Partition]] = (
    Field("partition", lambda one: one.name),
    Field("order", lambda one: one.node_sort_policy),
    Field("nodes", _ready, order=lambda one: one.counts.nodes),
    Field("apps", lambda one: str(one.counts.applications)),
    Field("running", lambda one: str(one.counts.allocations)),
    Field("waiting", lambda one: str(one.counts.waiting_asks)),
)
"""The fields by which partitions are sorted; the function `partitions` draws the table of partitions."""


def _waits_for(one: inspect_pb2.Application) -> str:
    return reasons(one.waiting_reasons)


APPLICATIONS: Sequence[Field[inspect_pb2.Application]] = (
    Field("application", lambda one: one.application_id, names=True),
    Field("queue", lambda one: one.queue, 2, names=True),
    Field("state", lambda one: state(one.state), 3),
    Field("user", lambda one: one.user, 5),
    Field("submitted", lambda one: instant(one.submitted_at_ms), 6, order=_submitted),
    Field("running", lambda one: f"{one.allocations:,}", 2, right=True, order=_running),
    Field("waiting", lambda one: f"{one.asks_waiting:,}", 2, right=True, order=_waiting),
    Field("uses", lambda one: phrase(one.usage), 7, order=lambda one: size(one.usage)),
    Field("waits for", _waits_for, ANSWER, least=TEXT_LEAST),
)


def nodes(found: Sequence[inspect_pb2.Node]) -> Sequence[Field[inspect_pb2.Node]]:
    """Return the fields of nodes, with used and total capacity of each resource type that a node has."""
    return node_fields(in_order(kind for one in found for kind in one.capacity))


def node_fields(kinds: Sequence[str]) -> Sequence[Field[inspect_pb2.Node]]:
    """Return the fields of nodes with these resource types."""
    return (
        Field("node", lambda one: one.node_id, names=True),
        Field("state", _node_state, 2),
        Field("running", _running_text, 3, right=True, order=_running),
        *(_used_of_node(kind, 4 + place) for place, kind in enumerate(kinds)),
        Field("notes", _notes, ANSWER, least=TEXT_LEAST),
    )


def _used_of_node(kind: str, gives_way: int) -> Field[inspect_pb2.Node]:
    return Field(
        heading(kind),
        lambda one: _used(one, kind),
        gives_way,
        right=True,
        order=lambda one: one.usage.get(kind, 0) + one.foreign_usage.get(kind, 0),
    )


def allocations(found: Sequence[inspect_pb2.Allocation]) -> Sequence[Field[inspect_pb2.Allocation]]:
    """Return the fields of allocations and asks, with a column for pod names when a pod's name is known."""
    return allocation_fields(named=any(map(pod_name, found)))


def allocation_fields(*, named: bool) -> Sequence[Field[inspect_pb2.Allocation]]:
    """Return the fields of allocations and asks, with or without the name of their pod."""
    key: Field[inspect_pb2.Allocation] = Field("key", lambda one: one.allocation_key, names=True)
    pod: Field[inspect_pb2.Allocation] = Field("pod", name_of, names=True)
    return (
        *([replace(key, gives_way=FIRST), pod] if named else [key]),
        Field("application", lambda one: one.application_id, 8, names=True),
        Field("queue", lambda one: one.queue, 3, names=True),
        Field("node", lambda one: one.node_id or NOTHING, 2, names=True),
        Field("state", lambda one: enum_state(inspect_pb2.AllocationState, one.state), 2),
        Field("since", _since, 6, order=lambda one: one.since_ms),
        Field("priority", lambda one: str(one.priority), 7, True, order=lambda one: one.priority),
        Field("resources", lambda one: phrase(one.resources), 5, order=_resources),
        Field("waits for", lambda one: one.waiting_code, ANSWER),
        Field("goes by", lambda one: one.decision_id, 2),
        Field("protection", _unless_normal, 4),
    )


def protection(one: inspect_pb2.Allocation) -> str:
    """Return the protection of a pod from preemption: the level that its manager reported, or its opt-out."""
    if one.state == inspect_pb2.ALLOCATION_STATE_FOREIGN or one.protection not in {"", NORMAL}:
        return one.protection
    return NORMAL if one.may_be_preempted else OPTED_OUT


def _since(one: inspect_pb2.Allocation) -> str:
    when = instant(one.since_ms)
    return f"before {when}" if one.since_at_the_latest else when


def _unless_normal(one: inspect_pb2.Allocation) -> str:
    return "" if protection(one) == NORMAL else protection(one)


def name_of(allocation: inspect_pb2.Allocation) -> str:
    """Return the pod's name, or the allocation's key when the name is not known."""
    return pod_name(allocation) or allocation.allocation_key


def _resources(one: inspect_pb2.Allocation) -> tuple[int, ...]:
    return size(one.resources)


def size(values: Mapping[str, int]) -> tuple[int, ...]:
    """Return the key by which resources are sorted: cores, then memory, then the sum of all other types."""
    rest = sum(amount for kind, amount in values.items() if kind not in FIRST_TYPES)
    return (*(values.get(kind, 0) for kind in FIRST_TYPES), rest)


def _node_state(one: inspect_pb2.Node) -> Text:
    return state("ready" if one.schedulable else "draining")


def pod_name(allocation: inspect_pb2.Allocation) -> str:
    """Return namespace and name of the allocation's pod, from the core's answer or from the allocation's tags.

    Return "" when neither the answer nor the tags have the name.
    """
    if allocation.name:
        return allocation.name
    tags = allocation.tags
    name = tags.get("kubernetes.io/meta/podName", "")
    return f"{tags.get('kubernetes.io/meta/namespace', 'default')}/{name}" if name else ""


def footer(count: int, noun: str, others: Iterable[str] = ()) -> Text:
    """Return the line below a table, with the number of its rows."""
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
