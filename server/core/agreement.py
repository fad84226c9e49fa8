"""The members of a job agree on class and preemption policy; on the queue they agree as members of one application (J1).

Only where the policy `job` is listed do classes mean anything, so that elsewhere nobody is refused for one (J4).
What runs already is never refused (design 1.10), and labels that change later are taken as they are.
"""

from server.books.applications import Application
from server.books.partition import Partition
from server.books.reserves import PLACEHOLDERS
from server.model.asks import AskSpec, JobClass, job_class
from server.model.quota import PreemptionSettings


def disagreement(partition: Partition, application: Application, spec: AskSpec) -> str:
    """Why a new ask may not join its job, "" when it may, or has none."""
    settings = partition.spec.preemption
    named = "job" in settings.policies and spec.job_key != PLACEHOLDERS
    job = application.jobs.get(spec.job_key) if named else None
    if job is None or job.example is None:
        return ""
    ours, others = _terms(spec, settings), _terms(job.example, settings)
    if ours == others:
        return ""
    said = [
        f"{mine}, not {theirs}" for mine, theirs in zip(ours, others, strict=True) if mine != theirs
    ]
    return (
        f"job {job.key!r} is mixed: unlike members that are there, this one is {' and '.join(said)}"
    )


def note(application: Application, spec: AskSpec) -> None:
    """Remember what a member that was taken in is like: those to come are compared with it."""
    job = application.jobs.get(spec.job_key)
    if job is not None:
        job.example = spec


def _terms(spec: AskSpec, settings: PreemptionSettings) -> tuple[str, str]:
    """Class (J2) and preemption policy (J3), with the partition's word where nothing was written."""
    firm = job_class(spec, settings) is JobClass.FIRM
    triggers = settings.job_default_trigger if spec.may_trigger is None else spec.may_trigger
    may = triggers and spec.allow_preempt_other
    return ("firm" if firm else "lendable"), (
        "one that may preempt" if may else "one that preempts nobody"
    )
