"""Messages of `evenhand.v1` for the settings of queues, and for the queues between which claims are possible. The functions are pure."""

from collections.abc import Iterable
from typing import Final

from evenhand.v1 import inspect_pb2 as pb
from server.model.queue_settings import Origin, ReachReport, SettingReport, SettingsReport
from server.rpc.evenhand.redaction import sees
from server.rpc.roles import Caller

_ORIGINS: Final = {
    Origin.HERE: pb.SETTING_ORIGIN_HERE,
    Origin.INHERITED: pb.SETTING_ORIGIN_INHERITED,
    Origin.DEFAULT: pb.SETTING_ORIGIN_DEFAULT,
    Origin.TEMPLATE: pb.SETTING_ORIGIN_TEMPLATE,
    Origin.TAG: pb.SETTING_ORIGIN_TAG,
}


_OF_PEOPLE: Final = frozenset({"limits", "submitacl", "adminacl"})
HIDDEN: Final = "not shown"


def queue(report: SettingsReport, caller: Caller) -> pb.QueueSettings:
    """Return the message of a queue with its settings."""
    return pb.QueueSettings(
        path=report.path,
        leaf=report.leaf,
        dynamic=not report.managed,
        settings=settings(report.settings, caller),
    )


def settings(found: Iterable[SettingReport], caller: Caller) -> list[pb.QueueSetting]:
    """Return the messages of settings in the given order.

    For a viewer, the users that the settings of other queues name are hidden.
    """
    visible = sees(caller)
    return [
        pb.QueueSetting(
            name=one.name,
            value=HIDDEN
            if one.name in _OF_PEOPLE and one.queue and not visible(one.queue)
            else one.value,
            origin=_ORIGINS[one.origin],
            queue=one.queue,
            note=one.note,
            resource_type=one.resource_type,
            amount=one.amount,
        )
        for one in found
    ]


def reach(report: ReachReport, caller: Caller) -> pb.QueueReach:
    """Return the message that says between which queues claims are possible.

    For queues that a viewer may not see, the message only says whether such queues exist.
    """
    visible = sees(caller)
    claims = [path for path in report.may_claim_from if visible(path)]
    claimed = [path for path in report.may_be_claimed_by if visible(path)]
    return pb.QueueReach(
        scope_root=report.scope,
        fences=report.fences,
        disabled=report.disabled,
        may_claim_from=claims,
        may_be_claimed_by=claimed,
        may_claim_elsewhere=len(claims) < len(report.may_claim_from),
        may_be_claimed_elsewhere=len(claimed) < len(report.may_be_claimed_by),
    )
