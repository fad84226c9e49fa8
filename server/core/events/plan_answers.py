"""The managers' answers to plan checks (design 1.8).

After a refusal the ask avoids the node, as after a failed binding, and the next plan uses other nodes. After REFUSED_MAX
refusals in a row, or if no answer comes in time, the ask waits for its back-off before it is tried again (G1).
"""

from collections.abc import Iterator
from dataclasses import replace

from server.core.events import excluded_nodes
from server.core.preemption import due_claims, plan_checks
from server.core.state import State
from server.model.decisions import Decision, Noted
from server.model.events import PlanChecked
from server.model.reasons import Code
from server.model.records import Verdict
from server.preemption.policy import Rule
from server.state.applications import Ask
from server.state.partition import Partition
from server.state.plan_checks import REFUSED_MAX, PlanCheck


def answered(state: State, event: PlanChecked, now: int) -> list[Decision]:
    """Handle a manager's answer to a plan check. An answer to a check that has ended changes nothing, and a note is returned."""
    partition = state.partitions.get(event.partition)
    checks = None if partition is None else partition.decisions.checks
    check = None if checks is None else checks.open.get(event.check_id)
    if partition is None or check is None or partition.owner != event.rm_id or check.fits:
        message = (
            f"the answer to plan check {event.check_id!r} is ignored: it has ended, or never was"
        )
        where = (event.partition, event.rm_id)
        return [Noted("manager", event.rm_id, Code.PLAN_CHECK_UNKNOWN, message, *where)]
    partition.round.open = True
    partition.decisions.checks.answers += 1
    if event.fits:
        check.fits = True
        return []
    reasons = dict(event.refused) or dict.fromkeys(check.keys, "")
    found = list(_refused(state, partition, check, reasons, now))
    partition.decisions.checks.drop(check)
    return found


def _refused(
    state: State, partition: Partition, check: PlanCheck, reasons: dict[str, str], now: int
) -> Iterator[Decision]:
    """Record that each refused ask avoids its node.

    After REFUSED_MAX refusals of an ask in a row, the ask's group waits for the back-off.
    """
    refused = partition.decisions.checks.refused
    for one, node_id in plan_checks.waiting(partition, check):
        key = one.key
        if key not in reasons:
            continue
        excluded_nodes.avoid(state, partition, one, node_id, now)
        refused[key] = refused.get(key, 0) + 1
        why = f": {reasons[key]}" if reasons[key] else ""
        because = f"its manager says that it would not fit on node {node_id}{why}"
        if refused[key] >= REFUSED_MAX:
            del refused[key]
            yield from _back_off(partition, one, _verdict(check, because, node_id, now))
        else:
            yield Noted("ask", key, Code.PLAN_CHECK_REFUSED, because, partition.name, one.rm_id)


def _back_off(partition: Partition, one: Ask, refused: Verdict) -> Iterator[Decision]:
    """Make the ask's group wait for the back-off, and record the verdict ``refused`` as the reason."""
    group = one.group
    assert group is not None, f"ask {one.key} waits"
    partition.round.tries.refuse(group, refused.at_ms)
    retry_ms = refused.at_ms + due_claims.backoff_of(partition, one)
    due_claims.call_again(partition, retry_ms)
    partition.round.tries.judge(group, replace(refused, retry_ms=retry_ms))
    message = f"preemption does not help ({refused.law}): {refused.because}"
    yield Noted("ask", one.key, Code.PREEMPTION_REFUSED, message, partition.name, one.rm_id)


def _verdict(check: PlanCheck, because: str, node_id: str, now: int) -> Verdict:
    return Verdict(check.about.policy, Rule.RM_CHECK.value, because, node_id, at_ms=now)


def overdue(partition: Partition, check_id: str, now: int) -> list[Decision]:
    """End a plan check that was not answered in time. The asks of the check wait for the back-off."""
    check = partition.decisions.checks.open.get(check_id)
    if check is None or check.fits or now < check.overdue_ms:
        return []
    because = (
        f"its manager did not answer within {plan_checks.ANSWER_MS // 1_000} s whether it would fit"
    )
    partition.decisions.checks.answers += 1
    found = plan_checks.end(partition, check, because)
    for one, node_id in plan_checks.waiting(partition, check):
        found += _back_off(partition, one, _verdict(check, because, node_id, now))
    return found
