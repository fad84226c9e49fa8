"""The comparison of pods that a manager reports again after a new registration with those that it reported before (design 1.10).

A pod that is reported as before changes nothing. A pod that is reported differently is changed as by an ordinary report.
"""

from server.core.events import lifecycle, recovery
from server.core.state import State
from server.model.asks import AskSpec, ReleaseMark, values
from server.model.events import AllocationAdded
from server.model.records import DecisionState
from server.state import journal
from server.state.applications import Application, Ask
from server.state.lost_work import SOFT
from server.state.nodes import Foreign
from server.state.partition import Partition


def is_unreported(partition: Partition, ask: Ask) -> bool:
    """Return whether the ask's manager registered again and did not report the ask or allocation since."""
    resumption = partition.resumption
    return resumption is not None and resumption.asks.get(ask.key) is ask


def clear_key(
    state: State, partition: Partition, key: str, application: Application | None, now: int
) -> None:
    """End a pod that is now reported as a pod of another kind or application, which counts as a pod of its own.

    ``application`` is that of the new report, None for a foreign pod.
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
    """Return the spec that the pod has if a report after a new registration has equal values; else the reported one."""
    same = is_unreported(partition, known) and values(known.spec) == values(spec)
    return known.spec if same else spec


def waits_again(partition: Partition, known: Ask) -> bool:
    """Note that a pod is reported again as a waiting ask; return whether it is a victim, which then has to wait again.

    Another allocation that is reported as waiting keeps its node: its placement is sent again at the end of the sync.
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
    """Take an allocation off a node on which it never ran. For a decision that evicts it, it has ended; no work is lost."""
    if ask.is_replaced:
        assert ask.released_by is not None
        why = "its placeholder does not run"
        journal.close(partition, ask.released_by, DecisionState.ABORTED, why)
    ask.going, ask.leaves_by = None, ""
    journal.unsettle(partition, ask)


def is_as_before(partition: Partition, known: Ask, event: AllocationAdded) -> bool:
    """Return whether an allocation that was not reported again yet is reported with the node and the spec that it has."""
    is_there = known.node is not None and known.node.node_id == event.node_id
    return is_there and known.spec is event.spec and is_unreported(partition, known)


def compare_facts(partition: Partition, ask: Ask, event: AllocationAdded) -> None:
    """Compare the other facts of an allocation that is reported again: its start and its mark."""
    journal.set_started(partition, ask, event.started_ms)
    _compare_mark(partition, ask, event.releasing)


def _compare_mark(partition: Partition, ask: Ask, mark: ReleaseMark | None) -> None:
    """Compare the mark with which an allocation is reported again with the order of the core.

    - Without a mark: if the core ordered the release, the order is sent again at the end of the sync.
    - With the mark of a decision that the core knows and that does not evict the pod any more: a soft eviction is withdrawn
      again; any other was carried out too early to be stopped, so that the pod counts as releasing.
    - With any other mark: as after a restart of the core (C8).
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
    """Take a foreign pod out of those that were not reported again; return whether it is reported as it was."""
    resumption = partition.resumption
    if resumption is None or resumption.foreign.get(known.key) is not known:
        return False
    del resumption.foreign[known.key]
    before = (known.node, known.demand, known.static, known.tags)
    return before == (arrived.node, arrived.demand, arrived.static, arrived.tags)
