"""The one planner: it answers an intent with a plan that holds whole, or with the law in its way (design 1.5).

It looks at a Trial and changes nothing.
"""

from server.preemption.policy import Intent, Law, Plan, Pledge, Refusal
from server.preemption.trial import Trial


def plan(trial: Trial, intent: Intent) -> Plan | Refusal:
    """A pledge without victims: the room will come by itself, and nobody else may take it."""
    ask = intent.ask
    row = trial.least_short(ask.kind)
    if row < 0:
        return Refusal(Law.NO_NODE, "no node that nobody holds could take it, were it empty")
    return Plan(intent.policy, (Pledge(ask, row, trial.view.nodes.ids[row]),))
