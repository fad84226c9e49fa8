"""The gang of a pod: the job that its labels name, or else its PodGroup (J1).

A pod without a node waits until its PodGroup is known. A pod that the core knows keeps its gang when the group is deleted.
"""

from __future__ import annotations

from shim_client.state_machine.state import PodRecord, State
from shim_client.translate import labels
from shim_client.translate.pod_groups import GROUP, VERSIONS

_UNSERVED = (
    f"podgroup {{name!r}} is not honoured: PodGroups of {GROUP} ({' or '.join(VERSIONS)}) are not served, or the "
    f"shim may not read them; name the gang in the labels {labels.JOB_KEY} and {labels.JOB_MEMBERS}"
)


def enroll(state: State, pod: PodRecord) -> None:
    """Record the pod as a member of its PodGroup, so that a change of the group is applied to the pod."""
    if pod.facts.pod_group:
        state.grouped.setdefault(_name_of(pod), {})[pod.facts.ref.uid] = None


def leave(state: State, pod: PodRecord) -> None:
    """Remove the pod from its PodGroup."""
    members = state.grouped.get(_name_of(pod))
    if members is not None:
        members.pop(pod.facts.ref.uid, None)
        if not members:
            del state.grouped[_name_of(pod)]


def lacking(state: State, pod: PodRecord) -> str:
    """Return the problem with the PodGroup of a pod because of which the pod is not reported as an ask.

    Return "" when there is no such problem.
    """
    if not _counts(pod) or pod.sent is not None or _name_of(pod) in state.pod_groups:
        return ""
    name = pod.facts.pod_group
    return (
        f"podgroup {name!r} is not there" if state.has_pod_groups else _UNSERVED.format(name=name)
    )


def gang_of(state: State, pod: PodRecord) -> tuple[str, int]:
    """Return key and declared size of the pod's gang.

    The key is empty if the pod has no gang, and the size is 0 if no size is declared.
    """
    report = pod.facts.report
    if not _counts(pod):
        return report.job_key, report.job_members
    group = state.pod_groups.get(_name_of(pod))
    if group is None:
        return (pod.job.key, pod.counted[1]) if pod.job else ("", 0)
    return (f"podgroup/{_name_of(pod)}", group.members) if group.members else ("", 0)


def _counts(pod: PodRecord) -> bool:
    """Return whether the pod uses its PodGroup. Labels that name a job take precedence over a PodGroup."""
    return bool(pod.facts.pod_group) and not pod.facts.report.job_key


def _name_of(pod: PodRecord) -> str:
    return f"{pod.facts.ref.namespace}/{pod.facts.pod_group}"
