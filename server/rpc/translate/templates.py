"""The part of an ask that the pods of one template share, in both generations of the interface (design 1.1).

Specs are interned: equal asks share one `AskSpec` object, in whatever order their maps were sent.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.unknown_fields import UnknownFieldSet

from server.model.asks import AskSpec, Protection, ReleaseMark, resized, values
from server.model.decisions import Termination
from server.rpc.limits import MEMBERS_MAX, SECONDS_MAX, TEMPLATES_MAX
from server.rpc.translate.constraints import constraints
from server.rpc.translate.fields import (
    RefusedError,
    bounded,
    listed,
    milliseconds,
    partition,
    quantities,
    whole,
)
from server.rpc.translate.preferences import preferences
from si.v1 import si_pb2

_Message = TypeVar("_Message", si_pb2.Allocation, si_pb2.AllocationAsk)
_VARINT: Final = 0
_ALLOW_OTHER_FIELD: Final = 2
_PROTECTIONS: Final = {
    si_pb2.PROTECTION_UNSPECIFIED: Protection.NORMAL,
    si_pb2.PROTECTION_NORMAL: Protection.NORMAL,
    si_pb2.PROTECTION_PREFER_NOT: Protection.PREFER_NOT,
    si_pb2.PROTECTION_FIRM: Protection.FIRM,
    si_pb2.PROTECTION_UNTOUCHABLE: Protection.UNTOUCHABLE,
}
_LENDABLE: Final = {si_pb2.PROTECTION_NORMAL: True, si_pb2.PROTECTION_FIRM: False}
"""Whether an ask is lendable (J2), by its protection.

An ask with another protection, or without a protection, is neither declared lendable nor declared firm.
"""
_TRIGGERS: Final = {
    si_pb2.JOB_TRIGGER_UNSPECIFIED: None,
    si_pb2.JOB_TRIGGER_YES: True,
    si_pb2.JOB_TRIGGER_NO: False,
}
_NEVER: Final = "Never"


class Template(NamedTuple):
    """The content of one encoded template. If `refusal` is set, the other fields have no meaning."""

    spec: AskSpec
    partition: str = ""
    refusal: str = ""
    waits: bool = True
    """Whether the template requests a resource. Only an allocation that already runs may request no resource."""
    mark: ReleaseMark | None = None


class Specs:
    """The interned specs. If there are too many specs, all specs are dropped. After that, equal specs may be two objects.

    Two equal objects need more memory and have no other effect.
    """

    def __init__(self) -> None:
        self._specs: dict[tuple[object, ...], AskSpec] = {}
        self._rests: dict[bytes, Template] = {}

    def intern(self, spec: AskSpec) -> AskSpec:
        """Return the shared object for specs equal to this one."""
        if len(self._specs) >= TEMPLATES_MAX:
            self._specs.clear()
        return self._specs.setdefault(values(spec), spec)

    def on_node(self, spec: AskSpec, node_id: str) -> AskSpec:
        """Return the spec with a required node."""
        pinned = replace(spec.constraints, required_node=node_id)
        return self.intern(replace(spec, constraints=pinned))

    def sized(
        self, message: _Message, field: str, meaning: Callable[[_Message], Template]
    ) -> Template:
        """Return the template of a message. Clear the quantities in the message, unless the quantities are refused.

        A tenant may send ten thousand messages that differ only in quantities. Such messages share the rest of their template,
        which is decoded only once.
        """
        try:
            resource = quantities(field, getattr(message, field))
        except RefusedError:
            return meaning(message)
        message.ClearField(field)
        encoded = message.SerializeToString()
        rest = self._rests.get(encoded)
        if rest is None:
            if len(self._rests) >= TEMPLATES_MAX:
                self._rests.clear()
            rest = self._rests[encoded] = meaning(message)
        if rest.refusal:
            return rest
        spec = self.intern(resized(rest.spec, resource))
        return Template(spec, rest.partition, "", bool(resource), rest.mark)

    def of_allocation(self, message: si_pb2.Allocation) -> Template:
        """Return the template of an `Allocation`: an ask or existing allocation of the newest generation."""
        try:
            spec = self.intern(_allocation_spec(message))
            mark = _mark(message.releasing) if message.HasField("releasing") else None
            return Template(spec, partition(message.partitionName), "", bool(spec.resource), mark)
        except RefusedError as refused:
            return Template(NO_SPEC, refusal=str(refused))

    def of_ask(self, message: si_pb2.AllocationAsk) -> Template:
        """Return the template of an `AllocationAsk`."""
        try:
            spec = self.intern(_ask_spec(message))
            return Template(spec, partition(message.partitionName), "", bool(spec.resource))
        except RefusedError as refused:
            return Template(NO_SPEC, refusal=str(refused))


NO_SPEC: Final = AskSpec(resource=())


def _allocation_spec(message: si_pb2.Allocation) -> AskSpec:
    policy = message.preemptionPolicy
    absent = not message.HasField("preemptionPolicy")
    return AskSpec(
        **_common(message),
        resource=quantities("resourcePerAlloc", message.resourcePerAlloc),
        originator=message.originator,
        allow_preempt_self=absent or policy.allowPreemptSelf,
        allow_preempt_other=absent or policy.allowPreemptOther,
    )


def _ask_spec(message: si_pb2.AllocationAsk) -> AskSpec:
    if message.maxAllocations not in (0, 1):
        raise RefusedError(
            f"maxAllocations: {message.maxAllocations} is not supported, send one ask for each allocation"
        )
    absent = not message.HasField("preemptionPolicy")
    return AskSpec(
        **_common(message),
        resource=quantities("resourceAsk", message.resourceAsk),
        originator=message.Originator,
        allow_preempt_self=absent or message.preemptionPolicy.allowPreemption,
        allow_preempt_other=absent or _allows_other(message.preemptionPolicy),
        timeout_ms=milliseconds(
            "executionTimeoutMilliSeconds", message.executionTimeoutMilliSeconds
        ),
    )


def _allows_other(policy: si_pb2.PreemptionPolicy) -> bool:
    """Return whether a policy allows preempting others (design 1.1).

    The field holds a text, as in our .proto, or the boolean of the published interface. `Never` and false forbid preemption. A
    policy without the field also forbids preemption, because proto3 does not send false.
    """
    unknown = UnknownFieldSet(policy)
    flags = [
        entry.data
        for entry in (unknown[index] for index in range(len(unknown)))
        if entry.field_number == _ALLOW_OTHER_FIELD and entry.wire_type == _VARINT
    ]
    if flags:
        return bool(flags[-1])
    return bool(policy.schedulerPreemption) and policy.schedulerPreemption != _NEVER


def _common(message: si_pb2.Allocation | si_pb2.AllocationAsk) -> dict[str, Any]:
    """Return the values of a spec by field, for the fields that both generations encode in the same way."""
    if message.protection not in _PROTECTIONS:
        raise RefusedError(f"protection: {message.protection} is unknown")
    if message.jobTrigger not in _TRIGGERS:
        raise RefusedError(f"jobTrigger: {message.jobTrigger} is unknown")
    listed("disruptionGroups", message.disruptionGroups)
    for group in message.disruptionGroups:
        bounded("disruptionGroups", group)
    return {
        "priority": message.priority,
        "constraints": constraints(message.constraints),
        "preferences": preferences(message.preferences),
        "protection": _PROTECTIONS[message.protection],
        "lendable": _LENDABLE.get(message.protection),  # J2
        "may_trigger": _TRIGGERS[message.jobTrigger],  # J3
        "placeholder": message.placeholder,
        "task_group": bounded("taskGroupName", message.taskGroupName),
        "gang_key": bounded("jobKey", message.jobKey),
        "min_members": _members(message.jobKey, message.jobMembers),
        "disruption_groups": tuple(sorted(set(message.disruptionGroups))),
        "rm_check": message.rmCheck,
        "plan_checks": message.rmCheck and message.answersPlanChecks,
        "grace_ms": whole("graceSeconds", message.graceSeconds, SECONDS_MAX) * 1000,
    }


def _members(gang_key: str, members: int) -> int:
    """Return the size of the ask's gang. Raise RefusedError for a size without a gang."""
    whole("jobMembers", members, MEMBERS_MAX)
    if members and not gang_key:
        raise RefusedError("jobKey: is empty while jobMembers is set")
    return members


def _mark(message: si_pb2.ReleasingMark) -> ReleaseMark:
    try:
        termination = Termination(message.terminationType)
    except ValueError as unknown:
        raise RefusedError(
            f"releasing.terminationType: {message.terminationType} is unknown"
        ) from unknown
    return ReleaseMark(
        termination=termination,
        decision_id=bounded("releasing.decisionID", message.decisionID),
        released_for=bounded("releasing.releasedFor", message.releasedFor),
        node_id=bounded("releasing.nodeID", message.nodeID),
        delivery=bounded("releasing.delivery", message.delivery),
    )
