"""The next steps for waiting asks: the changes that a person can make, or the time to wait.

The steps are derived from an explanation that the caller is allowed to see. Therefore the steps name only objects that the
explanation names.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from server.core.queries.large_enough import TAINT, allowing
from server.core.wait_reasons.node_filters import PORT
from server.model.phrases import count, listed, quantities, span
from server.model.reasons import Code
from server.model.records import Verdict
from server.model.reports import Explanation, GroupFit, LimitFit
from server.preemption.policy import Rule

_PASSING: Final = frozenset(
    {Rule.DELAY.value, Rule.BACK_OFF.value, Rule.PACE.value, Rule.ROUND.value}
)
"""The rules that stop applying after some time, without any change by a person."""
PODS: Final = "pods"
NODES_NAMED_MAX: Final = 2

_FIXED: Final = {
    Code.NOT_TRIED.value: "nothing: the next tick tries it",
    Code.NOT_SYNCED.value: "see that its resource manager runs: `evenhand doctor`",
    Code.QUEUE_STOPPED.value: "apply a configuration that has its queue, or submit it to another queue",
    Code.NO_NODES.value: "uncordon or add a node: `evenhand nodes`",
    Code.GANG_COUNTING.value: "nothing: it is tried as soon as no further member comes for a while",
    Code.PLACEHOLDERS_GATHERING.value: "see why its placeholders wait: `evenhand explain` with the name of one",
    Code.PLACEHOLDER_AWAITED.value: "nothing: it gets the place of the next placeholder of its task group",
    Code.PLACEHOLDER_GOING.value: "nothing: it runs as soon as its placeholder has ended",
}
_SWITCHES: Final = (
    "preemption.policies and preemption.enabled of the partition in queues.yaml; "
    "`evenhand simulate config FILE` says what would then be evicted"
)
_CONSTRAINTS: Final = {
    "taint": "tolerate the taint of a node",
    "node-selector": "change its nodeSelector, or label a node",
    "node-affinity": "change its node affinity, or label a node",
    "node-name": "see that the node that it names exists and takes pods",
}


def of_ask(found: Explanation, verdict: Verdict | None, now: int) -> tuple[str, ...]:
    """Return the next steps for a waiting ask, the best first.

    Return () if no step is known. ``verdict`` is the answer of preemption to the ask, None if there is no answer.
    """
    helped = _by_preemption(verdict, now)
    if helped:
        return (helped,)
    if found.gang is not None:
        return _of_gang(found, found.gang, verdict)
    if found.limit is not None:
        return (_of_limit(found.limit, "its pods"),)
    if found.code == Code.NO_NODE.value:
        return (_of_full_nodes(found), *_by_switching_on(verdict))
    if found.code == Code.NO_NODE_CAPACITY.value:
        first = allowing(found.excluded) or ["ask for less"]
        return (", or ".join([*first, f"add a node with {_amounts(found.resource)} free"]),)
    if found.code == Code.NO_NODE_CONSTRAINTS.value:
        return (_of_constraints(found),)
    return tuple(filter(None, [_FIXED.get(found.code, "")]))


def of_fit(fit: GroupFit, verdict: Verdict | None, now: int) -> tuple[str, ...]:
    """Return the next steps for the asks of a simulated group, the best first."""
    helped = _by_preemption(verdict, now)
    if helped:
        return (helped,)
    if not fit.left:
        return ("nothing: all of them fit now",)
    return (_choices(fit), *_by_switching_on(verdict))


def _by_switching_on(verdict: Verdict | None) -> tuple[str, ...]:
    """Return the step to switch on the policy that would serve the ask, if this policy is off in the configuration. Otherwise return ()."""
    if verdict is None or verdict.law != Rule.POLICY_OFF.value:
        return ()
    return (f"or switch on policy {verdict.policy} with {_SWITCHES}",)


def _by_preemption(verdict: Verdict | None, now: int) -> str:
    """Return a text that says what preemption will do for the ask without any change by a person.

    Return "" if preemption will evict no pod for the ask.
    """
    if verdict is None or not verdict.policy:
        return ""
    if not verdict.law:
        return "nothing: preemption frees capacity for it (see below)"
    if verdict.law in _PASSING and verdict.retry_ms > now:
        return f"wait {span(verdict.retry_ms - now)}: then preemption frees capacity for it"
    return ""


# Gangs ----------------------------------------------------------------------------------------------------------


def _of_gang(found: Explanation, fit: GroupFit, verdict: Verdict | None) -> tuple[str, ...]:
    if found.code == Code.GANG_GATHERING.value:
        return (of_gathering(fit),)
    fixed = _FIXED.get(found.code, "")
    if fixed:
        return (fixed,)
    if not fit.left:
        return ("nothing: the next tick places all of them",)
    return (_choices(fit), *_by_switching_on(verdict))


def of_gathering(fit: GroupFit) -> str:
    """Return the next step for a gang that waits for its remaining members."""
    there = fit.members + fit.running
    lower = "" if fit.placeholders else f", or lower min-available to {there}"
    return f"submit the other {count(fit.size - there, 'member')}{lower}"


def _choices(fit: GroupFit) -> str:
    """Return a text with alternative changes.

    Each of these changes alone would allow all members to be placed. For a gang, one alternative may be to lower the number of
    members that the gang needs.
    """
    queues = [one for one in fit.limits if one.kind == "queue"]
    needed = [_of_maxima(queues)] if queues else []
    needed += [_of_limit(one, "pods") for one in fit.limits if one.kind != "queue"]
    if fit.missing:
        needed.append(_of_missing(fit))
    text = "; and ".join(needed) or "wait until the evicted pods have ended"
    smaller = fit.fitting + fit.running
    if not fit.size or not smaller:
        return text
    if fit.placeholders:
        return f"{text}; or ask for {count(smaller, 'placeholder')} (minMember of its task groups)"
    return f"{text}; or lower min-available to {smaller}"


def _of_missing(fit: GroupFit) -> str:
    number = fit.looked_at - fit.on_nodes
    whom = (
        "it"
        if fit.looked_at == 1
        else "them"
        if not fit.on_nodes
        else "the other one"
        if number == 1
        else f"the other {number}"
    )
    several = "a node" if number == 1 else "nodes"
    add = f"add {several} with {_amounts(fit.rest)} free for {whom}"
    if fit.without_node:
        return ", or ".join([*allowing(fit.excluded), add])
    names = [one.node_id for one in fit.nodes if one.missing]
    where = f" on {listed(names)}" if 0 < len(names) <= NODES_NAMED_MAX else ""
    return f"wait until {quantities(fit.missing, 'more are')} free{where}, or {add}"


# Single asks ----------------------------------------------------------------------------------------------------


def _of_maxima(limits: Sequence[LimitFit]) -> str:
    """Return the step that gives a group of asks headroom under these limits, which are maxima of queues."""
    raised = listed([f"of queue {one.name} by {quantities(one.missing)}" for one in limits])
    return f"raise the max {raised}, or wait until pods there end"


def _of_limit(limit: LimitFit, pods: str) -> str:
    lacks = quantities(limit.missing)
    match limit.kind:
        case "queue":
            return f"raise the max of queue {limit.name} by {lacks}, or wait until {pods} there end"
        case "firm":
            return (
                f"raise the guarantee of queue {limit.name} by {lacks}, or let it be preempted "
                f"(label preemptible)"
            )
        case _:
            return (
                f"raise the limit of {limit.kind} {limit.name} in queue {limit.queue} by {lacks}, "
                f"or wait until pods of that {limit.kind} end"
            )


def _of_full_nodes(found: Explanation) -> str:
    add = f"add a node with {_amounts(found.resource)} free"
    if found.only_node:
        return f"wait until {quantities(found.nearest_missing, 'more are')} free there, or lower what runs there"
    if not found.nearest:
        return f"wait until a node has free capacity, or {add}"
    if set(found.tally) & {PORT}:
        return "use another host port, or wait until a node's is free"
    return f"wait until {quantities(found.nearest_missing, 'more are')} free on node {found.nearest}, or {add}"


def _of_constraints(found: Explanation) -> str:
    if any(TAINT in one.parts for one in found.excluded):
        return ", or ".join(allowing(found.excluded))
    known = [_CONSTRAINTS[why] for why in found.tally if why in _CONSTRAINTS]
    return f"{', or '.join(known[:2])}" if known else "change its constraints, or label a node"


def _amounts(resource: Mapping[str, int]) -> str:
    """Return a resource in words. The number of pods is left out unless it is the only type."""
    others = {kind: amount for kind, amount in resource.items() if kind != PODS}
    return quantities(others or resource)
