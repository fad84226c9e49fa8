"""The conversion of Kubernetes pods to asks.

Pods get the API server's defaults and priorities, and are read as the shim reads them. A pod that already runs, such as
a pod that `kubectl get pod -o yaml` printed, is treated as if it were submitted now.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from evenhand.v1 import simulate_pb2
from evenhand_cli.asks.classes import RESOLVED, Classes
from evenhand_cli.asks.documents import Document
from evenhand_cli.asks.simulated import Ask, Options
from shim_client.config import Settings
from shim_client.embedded import workloads
from shim_client.embedded.admission import Admission, InvalidError
from shim_client.messages import ApplicationReport
from shim_client.translate import labels, wire
from shim_client.translate.applications import NamespaceFacts
from shim_client.translate.fields import BadObjectError
from shim_client.translate.pod import PodFacts, for_core, read_pod

SETTINGS = Settings()
WORKLOADS = (
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
    "Job",
    "CronJob",
)
"""The kinds of workloads whose pods are simulated. All pods of a workload are simulated."""
PER_NODE = "DaemonSet"
RENEWED = ("uid", "creationTimestamp", "deletionTimestamp", "resourceVersion")
"""Fields of a pod that an API server sets when the pod is submitted."""
UNJUDGED = "volumes, affinity between pods and spread are not judged by a simulation"
GATED = "its scheduling gates are taken as open"


def pods(document: Document, namespace: str, limit: int) -> Iterator[Document]:
    """Yield the pod that a document describes, or at most `limit` of the pods that a workload wants.

    Raises Fault if the workload has no name, or has an invalid number or template.
    """
    if document.kind == "Pod":
        yield document
        return
    metadata = document.item.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise document.fault(f"this {document.kind} has no metadata.name")
    known = {"namespace": namespace, "uid": "simulated", **metadata}
    owner = {**document.item, "metadata": known}
    try:
        if document.kind == "CronJob":
            owner = workloads.job_of(owner)
        elif document.kind == "Deployment":
            owner = workloads.replica_set(owner)
            owner["metadata"]["uid"] = "simulated"
        wanted = _wanted(owner)
        for number in range(min(wanted, limit)):
            yield Document(_sized(_pod_of(owner, number), wanted), document.place)
    except workloads.BadWorkloadError as bad:
        raise document.fault(f"{document.kind} {known['name']}: {bad}", "correct it") from bad


def _wanted(owner: dict[str, Any]) -> int:
    if owner["kind"] != "Job":
        return workloads.wanted(owner, "replicas")
    parallel = workloads.wanted(owner, "parallelism")
    return min(parallel, workloads.wanted(owner, "completions", parallel))


def _sized(pod: dict[str, Any], wanted: int) -> dict[str, Any]:
    """Return the pod with the size of its job as a label.

    The label is needed because the shim would read this size from the pod's owner (J1), which a simulation does not
    have.
    """
    marks = pod["metadata"].get("labels") or {}
    known = marks.get(labels.JOB_MEMBERS) or marks.get(labels.JOB_MEMBERS_OWN)
    if known or not (marks.get(labels.JOB_KEY) or marks.get(labels.JOB_KEY_OWN)):
        return pod
    sized = {**marks, labels.JOB_MEMBERS_OWN: str(max(1, wanted))}
    return {**pod, "metadata": {**pod["metadata"], "labels": sized}}


def _pod_of(owner: dict[str, Any], number: int) -> dict[str, Any]:
    make = workloads.job_pod if owner["kind"] == "Job" else workloads.pod_of
    return make(owner, number)


def ask(
    pod: Document, classes: Classes, namespaces: Mapping[str, NamespaceFacts], options: Options
) -> Ask:
    """Return the ask that the shim would report for a pod.

    Raises Fault if the API server or the shim would refuse the pod.
    """
    metadata, spec = _part(pod, "metadata"), _part(pod, "spec")
    name = metadata.get("name") or f"{metadata.get('generateName') or 'pod-'}x"
    try:
        kept = _admitted(pod, {**metadata, "name": name}, spec, classes, options.namespace)
        facts = read_pod(kept, SETTINGS)
    except (InvalidError, BadObjectError) as bad:
        raise pod.fault(f"pod `{name}`: {bad}", "correct it, as the API server would ask") from bad
    return _asked(facts, spec, classes, namespaces, options)


def _admitted(
    pod: Document, metadata: dict[str, Any], spec: dict[str, Any], classes: Classes, namespace: str
) -> dict[str, Any]:
    """Return the pod as the API server would store it, with Evenhand as its scheduler and without a node."""
    fresh = {key: value for key, value in metadata.items() if key not in RENEWED}
    fresh["namespace"] = metadata.get("namespace") or namespace
    notes = fresh.get("annotations")
    if isinstance(notes, dict):
        fresh["annotations"] = {k: v for k, v in notes.items() if k != labels.RELEASED_FOR}
    resolved = {} if classes.resolves(spec) else classes.otherwise(spec, pod)
    left_out = {"nodeName", *(RESOLVED if resolved else ("priority", "preemptionPolicy"))}
    asked = {key: value for key, value in spec.items() if key not in left_out}
    asked["schedulerName"] = SETTINGS.scheduler_names[0]
    admission = Admission(lambda: {} if resolved else dict(classes.known))
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": fresh, "spec": asked}
    kept = admission.admit(item, 0, 0)
    kept["spec"] = {**kept["spec"], **resolved}
    return kept


def _asked(
    facts: PodFacts,
    spec: Mapping[str, Any],
    classes: Classes,
    namespaces: Mapping[str, NamespaceFacts],
    options: Options,
) -> Ask:
    member = facts.membership
    allowed = classes.allows_preemption(facts.priority_class)
    report = for_core(facts, class_allows=allowed, originator=False)
    message = wire.allocation(replace(report, key=f"{facts.ref.namespace}/{facts.ref.name}"))
    known = namespaces.get(facts.ref.namespace)
    tags = known.tags if known else {labels.TAG_NAMESPACE: facts.ref.namespace}
    application = ApplicationReport(
        member.application, report.partition, member.queue, member.user, member.groups, tags
    )
    simulated = simulate_pb2.SimulatedAsk(
        queue=options.queue, ask=message, application=wire.application(application)
    )
    assumed = (
        simulate_pb2.Assumption(
            name="priority", value=str(message.priority), because=classes.source(spec)
        ),
        simulate_pb2.Assumption(name="namespace", value=facts.ref.namespace),
    )
    return Ask(simulated, report.partition, tuple(_notes(facts, spec)), assumed)


def _notes(facts: PodFacts, spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield a note on each part of the manifest that the simulation ignores."""
    yield from facts.problems
    scheduler = spec.get("schedulerName")
    if scheduler not in SETTINGS.scheduler_names:
        yield f"it names the scheduler `{scheduler or 'default-scheduler'}`, and is taken as one of ours"
    if facts.gates:
        yield GATED
    if facts.demands or facts.claims:
        yield UNJUDGED


def _part(pod: Document, field: str) -> dict[str, Any]:
    found = pod.item.get(field)
    if not isinstance(found, dict):
        raise pod.fault(f"this Pod has no {field}")
    return found
