"""The invariants of the state in one call. A value is checked before the values that are computed from it."""

from server.state.invariants.amounts import check_amounts, check_tree
from server.state.invariants.capacity import check_limits, check_nodes
from server.state.invariants.columns import check_columns
from server.state.invariants.keys import check_classes, check_commitments, check_keys
from server.state.invariants.order import check_order
from server.state.invariants.reports import check_lost_work, check_shadow, check_thrashing
from server.state.invariants.search import check_search
from server.state.invariants.waiting import check_gathering, check_groups, check_parked
from server.state.partition import Partition


def validate(partition: Partition) -> None:
    """Assert every invariant of a partition between two events (design 5). The message of the AssertionError names the object.

    Nothing is changed. While `ranking_stale` says that ranks must be rebuilt, the checks of ranks and of parked groups are left
    out.
    """
    check_tree(partition)
    check_keys(partition)
    check_commitments(partition)
    check_classes(partition)
    check_groups(partition)
    check_gathering(partition)
    check_amounts(partition)
    check_nodes(partition)
    check_limits(partition)
    check_search(partition)
    check_columns(partition)
    check_thrashing(partition)
    check_lost_work(partition)
    check_shadow(partition)
    if not partition.ranking_stale:
        check_parked(partition)
        check_order(partition)
