"""Checks of the columns, which must agree with the objects, except for changes that are not written yet (design 6.1)."""

from server.snapshot.columns import (
    NOT_STARTED,
    RELEASING,
    REPLACED,
    VETOED,
    AllocationColumns,
    NodeColumns,
    flags_of,
)
from server.state.applications import Ask
from server.state.partition import Partition


def check_columns(partition: Partition) -> None:
    """Assert that each row agrees with its allocation or node, unless that object is still to be written to the row.

    No row without an allocation may be in use.
    """
    columns = partition.columns
    allocations = columns.allocations.freeze()
    pending = {id(ask) for ask in partition.columns.changed}
    asks = list(partition.asks.values())
    for ask in asks:
        if id(ask) not in pending:
            _check_ask(allocations, ask)
    rows = {ask.row for ask in [*asks, *partition.columns.changed] if ask.row >= 0}
    alive = {row for row, lives in enumerate(allocations.alive.tolist()) if lives}
    assert alive == rows, f"rows {sorted(alive ^ rows)} stand for no allocation, or for several"
    assert [bool(key) for key in allocations.keys] == allocations.alive.tolist(), (
        "a row without an allocation has a key, or one with an allocation has none"
    )
    if columns.width == len(partition.types):
        releasing = columns.allocations.releasing(columns.nodes.count)
        _check_nodes(partition, columns.nodes.freeze(releasing))


def _check_ask(rows: AllocationColumns, ask: Ask) -> None:
    row = ask.row
    assert (row >= 0) == (ask.node is not None), (
        f"{ask.key} has row {row}, and {ask.node} for a node"
    )
    if ask.node is None:
        return
    names = rows.keys[row], rows.application_ids[row], rows.specs[row], rows.demands[row]
    application = ask.application
    want = ask.key, application.application_id, ask.spec, ask.ask_class.demand
    assert names == want, f"row {row} holds {names}, not {want}"
    numbers = (
        rows.nodes,
        rows.leaves,
        rows.applications,
        rows.priorities,
        rows.flags,
        rows.created_ms,
        rows.started_ms,
    )
    facts = (
        ask.node.slot,
        application.leaf.number,
        application.number,
        ask.spec.priority,
        flags_of(ask.spec)
        | (RELEASING if ask.releasing else 0)
        | (VETOED if ask.vetoed else 0)
        | (REPLACED if ask.is_replaced else 0),
        ask.created_ms,
        NOT_STARTED if ask.started_ms is None else ask.started_ms,
    )
    have = tuple(int(column[row]) for column in numbers)
    assert have == facts, f"row {row} of {ask.key} says {have}, not {facts}"
    assert bool(rows.standing[row]) != ask.releasing, f"row {row} of {ask.key}: standing is wrong"
    taken = {index: amount for index, amount in enumerate(rows.resources[row].tolist()) if amount}
    assert taken == dict(ask.ask_class.node_demand), f"row {row} of {ask.key} takes {taken}"


def _check_nodes(partition: Partition, rows: NodeColumns) -> None:
    unread = partition.index.unread
    for slot in [one for one in range(len(partition.node_slots.nodes)) if one not in unread]:
        node = partition.node_slots.nodes[slot]
        have = (
            rows.ids[slot],
            int(rows.numbers[slot]),
            bool(rows.open[slot]),
            bool(rows.held[slot]),
        )
        want = ("", 0, False, False)
        if node is not None:
            want = (node.node_id, node.number, node.entry is not None, bool(node.pledges))
            assert rows.free[slot].tolist() == node.free, f"row {slot} of {node.node_id}: free"
            assert rows.capacity[slot].tolist() == node.capacity, (
                f"row {slot} of {node.node_id}: capacity"
            )
        assert have == want, f"row {slot} of the nodes says {have}, not {want}"
