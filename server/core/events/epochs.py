"""The epochs of registrations (design 7.2).

If several processes of one shim run, only the process that was elected last may register. The epoch counts the elections.
"""

from server.core.state import Manager
from server.model.events import ManagerRegistered


def obstacle(manager: Manager | None, event: ManagerRegistered) -> str:
    """Return why a registration is refused because of its epoch, or "" if it is not refused.

    ``manager`` is the manager's last registration, or None if the manager is not registered. A registration is refused if its
    epoch is lower than that of the last registration. A registration is refused, too, if the epochs are equal and the
    registration comes from another process. A registration without an epoch is accepted if it asks the core to forget the
    manager. With such a registration, a cluster can stop using elections.
    """
    if manager is None or event.epoch > manager.epoch or not manager.epoch:
        return ""
    if event.forget and not event.epoch:
        return ""
    if event.epoch == manager.epoch and event.instance == manager.instance:
        return ""
    return (
        f"resource manager {event.rm_id!r} may not register{term(event.epoch, event.instance) or ' without an epoch'}: "
        f"it has registered{term(manager.epoch, manager.instance)}"
    )


def term(epoch: int, instance: str) -> str:
    """Return a text that names the epoch of a shim's registration and the process that registers.

    Return "" for a registration without an epoch.
    """
    if not epoch:
        return ""
    return f" in epoch {epoch} as {instance!r}" if instance else f" in epoch {epoch}"
