"""The partition as if policy `job` were listed: with it come the classes of asks, and which are firm (J2, J4).

Read from the live state, because no View knows what asks say of a class while classes have no
effect.
"""

from dataclasses import replace

from server.books.applications import Ask
from server.books.partition import Partition
from server.model.asks import JobClass, job_class
from server.model.fit import Amounts
from server.model.quota import PreemptionSettings
from server.preemption import job
from server.preemption.claimants import Claimant
from server.view.view import View
from server.view.waiting import FirmUse, WaitingAsk


def listing(partition: Partition, view: View) -> View:
    """Return the View with policy `job` on; the View itself where it is."""
    settings = view.settings
    if job.NAME in settings.policies:
        return view
    listed = replace(settings, policies=(*settings.policies, job.NAME))
    return replace(view, settings=listed, firm=_firm(partition, listed))


def classed(claimant: Claimant, settings: PreemptionSettings) -> Claimant:
    """Return the claimant with the classes that these settings give to asks."""
    if isinstance(claimant, WaitingAsk):
        kind = replace(claimant.kind, job_class=job_class(claimant.spec, settings))
        return claimant._replace(kind=kind)
    members = (classed(one, settings) for one in claimant.members)
    return replace(claimant, members=tuple(one for one in members if isinstance(one, WaitingAsk)))


def _firm(partition: Partition, settings: PreemptionSettings) -> dict[str, FirmUse]:
    """Return by queue what firm asks hold once all ordered evictions are done, and that with what they want."""
    held: dict[str, Amounts] = {path: partition.types.zeros() for path in partition.queues}
    waiting = {path: partition.types.zeros() for path in partition.queues}
    dying = set(partition.columns.allocations.dying())
    for ask in partition.asks.values():
        if ask.key not in dying and job_class(ask.spec, settings) is JobClass.FIRM:
            _add(held if _is_counted(ask) else waiting, ask)
    return {
        path: FirmUse(
            tuple(held[path]), tuple(map(sum, zip(held[path], waiting[path], strict=True)))
        )
        for path in held
    }


def _is_counted(ask: Ask) -> bool:
    """Return whether the ask has its place, or a promise that does not give way."""
    return ask.node is not None or (ask.pledge is not None and not ask.pledge.reserves)


def _add(sums: dict[str, Amounts], ask: Ask) -> None:
    for queue in ask.application.leaf.path_up():
        for index, quantity in ask.ask_class.demand:
            sums[queue.path][index] += quantity
