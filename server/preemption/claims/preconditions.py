"""The rules that an ask must pass before any victim is considered, for claims and for replacements within a queue (G1, G3)."""

from server.model.policies import JOB
from server.model.quota import PreemptionPolicy
from server.preemption.policy import Refusal, Rule
from server.preemption.trial import Trial
from server.snapshot.waiting import WaitingAsk


def of_the_ask(trial: Trial, ask: WaitingAsk) -> Refusal | None:
    """Return a refusal for the first precondition that the ask does not meet. Return None if the ask meets all preconditions."""
    properties = trial.snapshot.queues[ask.leaf].spec.properties
    if not ask.spec.allow_preempt_other:  # G1
        return Refusal(Rule.NEVER_PREEMPTS, "its preemptionPolicy is Never")
    if ask.spec.constraints.required_node:  # G1
        return Refusal(
            Rule.REQUIRED_NODE, "it requires a node by name, and claims nothing elsewhere"
        )
    if ask.spec.may_fail_to_bind:  # design 1.8
        return Refusal(Rule.RM_CHECK, "its resource manager has to look at a node first")
    if properties.preemption_policy is PreemptionPolicy.DISABLED:  # G3
        return Refusal(Rule.DISABLED, f"preemption is disabled for queue {ask.leaf}")
    if not ask.within_limits:
        return Refusal(Rule.USER_LIMIT, "a limit of its user or group has no headroom for it")
    return of_its_labels(trial, ask)


def of_its_labels(trial: Trial, ask: WaitingAsk) -> Refusal | None:
    """Return a refusal if the ask's label forbids evictions for the ask (J3). Otherwise return None.

    The label `can-preempt` of the ask decides. Without the label, the partition's default decides.

    The rule applies in partitions that list policy `job`, in which a single ask is a gang of one.
    """
    settings, may = trial.snapshot.settings, ask.spec.may_trigger
    if not settings.lists(JOB):
        return None
    if may is False:
        return Refusal(Rule.NO_TRIGGER, f"{ask.key} is labelled can-preempt: false")
    if not (may or settings.job_default_trigger):
        return Refusal(Rule.NO_TRIGGER, f"{ask.key} is not labelled can-preempt: true")
    return None
