"""The partition as if policy `job` were listed, so that each ask has a gang class: firm or lendable (J2, J4).

The live state is read, because a snapshot has no gang classes while policy `job` is not listed.
"""

from dataclasses import replace

from server.model.asks import GangClass, gang_class
from server.model.fit import Amounts
from server.model.policies import JOB
from server.model.quota import PreemptionSettings
from server.preemption.claims.turn_order import Claimant
from server.snapshot.snapshot import Snapshot
from server.snapshot.waiting import FirmUse, WaitingAsk
from server.state.applications import Ask
from server.state.partition import Partition


def listing(partition: Partition, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with policy `job` on. If the policy is on already, return the given snapshot."""
    settings = snapshot.settings
    if settings.lists(JOB):
        return snapshot
    listed = replace(settings, policies=(*settings.policies, JOB.name))
    return replace(snapshot, settings=listed, firm=_firm(partition, listed))


def classed(claimant: Claimant, settings: PreemptionSettings) -> Claimant:
    """Return the claimant with the gang classes (firm or lendable) that these settings give to asks."""
    if isinstance(claimant, WaitingAsk):
        kind = replace(claimant.kind, gang_class=gang_class(claimant.spec, settings))
        return claimant._replace(kind=kind)
    members = (classed(one, settings) for one in claimant.members)
    return replace(claimant, members=tuple(one for one in members if isinstance(one, WaitingAsk)))


def _firm(partition: Partition, settings: PreemptionSettings) -> dict[str, FirmUse]:
    """Return two amounts of firm pods for each queue.

    The first amount is what firm pods of the queue hold once all ordered evictions are done. The second amount also includes
    the requests of the waiting firm asks.
    """
    held: dict[str, Amounts] = {path: partition.types.zeros() for path in partition.queues}
    waiting = {path: partition.types.zeros() for path in partition.queues}
    dying = set(partition.columns.allocations.dying())
    for ask in partition.asks.values():
        if ask.key not in dying and gang_class(ask.spec, settings) is GangClass.FIRM:
            _add(held if _is_counted(ask) else waiting, ask)
    return {
        path: FirmUse(
            tuple(held[path]), tuple(map(sum, zip(held[path], waiting[path], strict=True)))
        )
        for path in held
    }


def _is_counted(ask: Ask) -> bool:
    """Return whether the firm usage includes the ask: the ask is placed, or has a pledge that does not give way to claims."""
    return ask.node is not None or (ask.pledge is not None and not ask.pledge.reserves)


def _add(sums: dict[str, Amounts], ask: Ask) -> None:
    for queue in ask.application.leaf.path_up():
        for index, quantity in ask.ask_class.demand:
            sums[queue.path][index] += quantity
