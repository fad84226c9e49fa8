"""The rule that all members of a gang have the same gang class (firm or lendable) and preemption policy (J1).

All members are in one queue because they belong to one application. The gang classes of members matter only if policy `job` is
listed. If policy `job` is not listed, no ask is rejected because of its gang class (J4). A running member is never rejected
(design 1.10). A later change of labels is accepted.
"""

from server.model.asks import AskSpec, GangClass, gang_class
from server.model.policies import JOB
from server.model.quota import PreemptionSettings
from server.state.applications import Application
from server.state.partition import Partition
from server.state.placeholders import PLACEHOLDERS


def disagreement(partition: Partition, application: Application, spec: AskSpec) -> str:
    """Return why a new ask may not join its gang. Return "" if the ask may join the gang, or belongs to no gang."""
    settings = partition.spec.preemption
    named = settings.lists(JOB) and spec.gang_key != PLACEHOLDERS
    gang = application.gangs.get(spec.gang_key) if named else None
    if gang is None or gang.example is None:
        return ""
    ours, others = _terms(spec, settings), _terms(gang.example, settings)
    if ours == others:
        return ""
    said = [
        f"{mine}, not {theirs}" for mine, theirs in zip(ours, others, strict=True) if mine != theirs
    ]
    return f"gang {gang.key!r} is mixed: unlike members that are there, this one is {' and '.join(said)}"


def note(application: Application, spec: AskSpec) -> None:
    """Record an accepted member, with which later members of its gang are compared."""
    gang = application.gangs.get(spec.gang_key)
    if gang is not None:
        gang.example = spec


def _terms(spec: AskSpec, settings: PreemptionSettings) -> tuple[str, str]:
    """Return the gang class (J2) and the preemption policy (J3) of an ask.

    The partition's defaults replace values that the ask does not declare.
    """
    firm = gang_class(spec, settings) is GangClass.FIRM
    triggers = settings.job_default_trigger if spec.may_trigger is None else spec.may_trigger
    may = triggers and spec.allow_preempt_other
    return ("firm" if firm else "lendable"), (
        "one that may preempt" if may else "one that may not preempt"
    )
