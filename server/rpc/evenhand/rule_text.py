"""The rules of preemption as texts with their ids, for explanations."""

from collections.abc import Mapping
from typing import Final

from server.preemption.policy import Rule

_WORDS: Final[Mapping[Rule, str]] = {
    # Rules on the ask and its queue.
    Rule.NO_NODE: "no node could hold it",
    Rule.STOPPED_QUEUE: "its queue is stopped",
    Rule.HEAD_ROOM: "a queue on its path has no headroom for it",
    Rule.USER_LIMIT: "a limit of its user or group is reached, and victims of others relieve none",
    Rule.ONE_AN_ASK: "capacity is pledged to it already (G1)",
    Rule.ONE_A_NODE: "the node is kept for another ask",
    Rule.LEAF_FULL: "its queue holds as many reservations as it may",
    Rule.PARTITION_FULL: "the partition holds as many reservations as it may",
    Rule.NEVER_PREEMPTS: "its PriorityClass says preemptionPolicy: Never (G1)",
    Rule.RM_CHECK: "it may fail to bind: its manager refused the nodes so far, or answers no plan checks",
    Rule.PLAN_CHECK: "its manager was asked whether it would fit after the evictions, and has not answered yet",
    Rule.POLICY_OFF: "the policy that would serve it is not on in this partition",
    Rule.DISABLED: "preemption.policy: disabled on its queue (G3)",
    Rule.DELAY: "it has not waited for the preemption.delay of its queue (G1, I5)",
    Rule.BACK_OFF: "it was tried a moment ago, and waits for the back-off (G1)",
    Rule.PACE: "a budget of this round is used up, and the decision is put off (P5)",
    Rule.ROUND: "the next round of claims has not begun (P1)",
    Rule.NO_GUARANTEE: "no queue on its path, up to the fence, is entitled to more of a type that it requests (G2, W6)",
    Rule.OVER_GUARANTEE: "the queue that decides for a type has its share of it already (G2, W6)",
    Rule.OVER_MAX: "a queue on its path is over its maximum, and is reduced first (G9)",
    Rule.NO_VICTIMS: "on no node do the victims that the rules allow free enough capacity (G8, G12)",
    Rule.SEARCH_BOUND: "the search for victims was cut off (G8)",
    Rule.NO_TRIGGER: "its label can-preempt forbids preemption for it, or is needed and missing (J3)",
    Rule.GATHERING: "not all members of its gang are there (J1)",
    Rule.FIRM_LIMIT: "firm pods may use no more than a queue on the path is guaranteed (J4)",
    Rule.MAX: "a maximum has no headroom for the whole gang, whatever is evicted from its queue (J4, J6, J8)",
    Rule.MEMBER: "one member of its gang gets no node, so that none gets any (J8)",
    Rule.FROZEN: "such claims from that queue repeated without end, and are frozen for a while (invariant 18)",
    # Rules on a candidate.
    Rule.OWN_APPLICATION: "it belongs to the same application (I2, rule 3), or to the same gang (J7)",
    Rule.GANG: "its gang would be broken, and may not be evicted as a whole (J12)",
    Rule.OTHER_QUEUE: "it runs in another queue, whose pods may not be evicted for it (I2, J7)",
    Rule.OWN_QUEUE: "it runs in the queue that asks (G3)",
    Rule.FENCE: "it runs outside the fence of the asking queue (G3)",
    Rule.DECIDING_QUEUE: "it runs below the queue that is short of what is lacking, and evicting it would gain that queue nothing (G2, W6)",
    Rule.CANDIDATE_DISABLED: "preemption.policy: disabled protects its queue (G3)",
    Rule.PRIORITY: "its priority, with the offsets of its queues, is not lower than that of the ask (G5)",
    Rule.REQUIRED_NODE: "it was made for its node, as a DaemonSet's pods are (G6, Q10)",
    Rule.RELEASING: "it is being evicted already (G6, Q10)",
    Rule.REPLACED: "it is a placeholder that is being replaced (G6)",
    Rule.NO_COMMON_TYPE: "it holds nothing of what is lacking (G6, Q10)",
    Rule.FIRM: "it is labelled as not preemptible (V3)",
    Rule.UNTOUCHABLE: "it is critical to the system, or its manager could not take it away a moment ago (V3)",
    Rule.MIN_RUNTIME: "it has not run for the preemption.minruntime of its queue (V4)",
    Rule.BUDGET: "its disruption budget allows no disruption now (V5)",
    Rule.NOT_OVER_GUARANTEE: "its queue, or one above, does not exceed its entitlement in the types that are lacking (rule 5, G4)",
    Rule.BELOW_GUARANTEE: "without it a queue would be below its entitlement (rule 2, G4, Q12)",
    Rule.OVERSHOOT: "it is larger than what is left to free, with overshoot: none (Q13)",
    Rule.NOT_NEEDED: "there was enough without it (G8, Q12)",
    Rule.OTHER_NODE: "the victims on another node ranked before those on its node (G8)",
    # Rules on a plan.
    Rule.SEVERAL_NODES: "its victims would run on several nodes (G8)",
    Rule.NOT_MINIMAL: "a victim could be given back",
    Rule.VICTIM_TWICE: "a victim is evicted by another decision already",
    Rule.NO_ROOM_MADE: "it would not fit after the releases",
    Rule.PART_OF_GANG: "it frees capacity for some members of a gang and not for all (J8)",
    Rule.OVER_SHARE: "it takes more from other queues than its own is still entitled to (J7)",
    Rule.TARGET_TYPES: "a victim holds nothing of what the queue has to free (Q10)",
}


def words(rule: str) -> str:
    """Return the text of a rule.

    If this version has no text for the rule, return the id.
    """
    known = next((one for one in Rule if one == rule), None)
    return rule if known is None else _WORDS.get(known, rule)
