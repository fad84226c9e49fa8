"""The comparison of a manager's reports about pods before and after a new registration (design 1.10).

If the new report of a pod equals the earlier report, nothing changes. If the reports differ, the pod is changed as by an
ordinary report.
"""

from server.core.events import lifecycle, recovery
from server.core.state import State
from server.model.asks import AskSpec, ReleaseMark, is_same
from server.model.events import AllocationAdded
from server.model.records import DecisionState
from server.state import journal
from server.state.applications import Application, Ask
from server.state.lost_work import SOFT
from server.state.nodes import Foreign
from server.state.partition import Partition


def is_unreported(partition: Partition, ask: Ask) -> bool:
    """Return whether the ask's manager registered again, and has not reported the ask or allocation since then."""
    resumption = partition.resumption
    return resumption is not None and resumption.asks.get(ask.key) is ask


def clear_key(
    state: State, partition: Partition, key: str, application: Application | None, now: int
) -> None:
    """End a known pod if the new report under its key cannot be about this pod.

    The report cannot be about the known pod if it names another application, or if exactly one of the two pods is foreign. The
    reported pod then counts as a new pod.

    ``application`` is the application of the new report, or None if the report is about a foreign pod.
    """
    resumption = partition.resumption
    if resumption is None:
        return
    foreign = partition.foreign.pods.get(key)
    if application is not None and foreign is not None and resumption.foreign.get(key) is foreign:
        del resumption.foreign[key]
        journal.unsettle_foreign(partition, foreign)
    known = partition.asks.get(key)
    if (
        known is not None
        and is_unreported(partition, known)
        and known.application is not application
    ):
        resumption.reported(known)
        lifecycle.end(state, partition, known, now)


def same_spec(partition: Partition, known: Ask, spec: AskSpec) -> AskSpec:
    """Return the pod's known spec if the first report after a new registration has equal values. Else return the reported spec."""
    same = is_unreported(partition, known) and is_same(known.spec, spec)
    return known.spec if same else spec


def waits_again(partition: Partition, known: Ask) -> bool:
    """Record that a pod is reported again as a waiting ask.

    Return whether the pod was being released or replaced, and therefore becomes a waiting ask again. An allocation that was
    neither being released nor being replaced keeps its node, and its placement is sent again at the end of the sync.
    """
    resumption = partition.resumption
    if resumption is None or not is_unreported(partition, known):
        return False
    resumption.reported(known)
    if known.node is None:
        return False
    if known.releasing or known.is_replaced:
        return True
    resumption.unseen[known.key] = known
    return False


def leave_node(partition: Partition, ask: Ask) -> None:
    """Take an allocation off a node on which it never ran.

    A decision that evicts the allocation counts the allocation as ended, without lost work.
    """
    if ask.is_replaced:
        assert ask.released_by is not None
        why = "its placeholder does not run"
        journal.close(partition, ask.released_by, DecisionState.ABORTED, why)
    ask.going, ask.leaves_by = None, ""
    journal.unsettle(partition, ask)


def is_as_before(partition: Partition, known: Ask, event: AllocationAdded) -> bool:
    """Return whether the first report of an allocation after a new registration has the node and the spec that the core knows."""
    is_there = known.node is not None and known.node.node_id == event.node_id
    return is_there and is_same(known.spec, event.spec) and is_unreported(partition, known)


def compare_facts(partition: Partition, ask: Ask, event: AllocationAdded) -> None:
    """Compare the reported start and release mark of an allocation with the stored start and mark (C8).

    The allocation is being reported again.
    """
    journal.set_started(partition, ask, event.started_ms)
    _compare_mark(partition, ask, event.releasing)


def _compare_mark(partition: Partition, ask: Ask, mark: ReleaseMark | None) -> None:
    """Compare the mark in the new report of an allocation with the core's order to evict the allocation, if there is such an order.

    - If there is no mark, and the pod was being released or replaced, the end of the sync sends the core's order again
      (`resuming`).
    - The mark may name a decision that the core knows and that no longer evicts the pod. If that eviction was soft, its
      withdrawal is sent again. If that eviction was not soft, it has already begun, so that the pod counts as releasing, unless
      the eviction was just vetoed.
    - Any other mark is handled as after a restart of the core (C8).
    """
    resumption = partition.resumption
    assert resumption is not None, "no sync is in progress"
    resumption.reported(ask)
    leaves = ask.releasing or ask.is_replaced
    if mark is None:
        if leaves:
            resumption.unordered[ask.key] = ask
    elif not leaves and mark.decision_id in partition.decisions.records:
        if mark.delivery == SOFT:
            resumption.withdrawn[ask.key] = mark.decision_id
        elif not ask.vetoed:
            journal.set_releasing(partition, ask, releasing=True)
    else:
        recovery.note(partition, ask, mark)


def is_same_foreign(partition: Partition, known: Foreign, arrived: Foreign) -> bool:
    """Record that a foreign pod is reported again.

    Return whether the node, the size and the tags of the pod are the same as before.
    """
    resumption = partition.resumption
    if resumption is None or resumption.foreign.get(known.key) is not known:
        return False
    del resumption.foreign[known.key]
    before = (known.node, known.demand, known.static, known.tags)
    return before == (arrived.node, arrived.demand, arrived.static, arrived.tags)
