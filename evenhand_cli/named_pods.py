"""The pods to which a name refers: the pod with this name, or the pods of a Deployment, Job or gang."""

import re
from collections.abc import Sequence

from evenhand.v1 import inspect_pb2
from evenhand_cli.render.tables import WAITING_STATES, pod_name


def meant(
    found: Sequence[inspect_pb2.Allocation], name: str
) -> tuple[list[str], list[inspect_pb2.Allocation]]:
    """Return the keys of the pods with this name.

    If no pod has this name, look for a workload with this name: return the key of the pod that is explained for the
    workload, and the workload's pods.
    """
    keys = [one.allocation_key for one in found if is_pod(one, name)]
    if keys:
        return keys, []
    pods = [one for one in found if belongs_to(one, name)]
    return speaking(pods), pods


def speaking(pods: Sequence[inspect_pb2.Allocation]) -> list[str]:
    """Return a list with the key of the one pod whose explanation is shown for a workload.

    The pod is the first waiting pod or, if no pod waits, the first pod. Return an empty list if the workload has no
    pods.
    """
    waiting = [one for one in pods if one.state in WAITING_STATES]
    return [one.allocation_key for one in (waiting or pods)[:1]]


def belongs_to(one: inspect_pb2.Allocation, name: str) -> bool:
    """Return whether a pod belongs to a Deployment, Job or gang.

    The function compares the pod's name, its label job-name, and the key of its gang.
    """
    namespace, _, bare = name.rpartition("/")
    space, _, pod = pod_name(one).partition("/")
    if namespace and namespace != space:
        return False
    labelled = one.tags.get("kubernetes.io/label/job-name", "")
    made = re.fullmatch(rf"{re.escape(bare)}(-[a-z0-9]{{1,10}}){{1,2}}", pod)
    return bool(made) or bare in {labelled, one.job_key}


def is_pod(allocation: inspect_pb2.Allocation, name: str) -> bool:
    """Return whether the allocation's pod has this name, given with or without the namespace."""
    full = pod_name(allocation)
    return bool(full) and name in (full, full.partition("/")[2])
