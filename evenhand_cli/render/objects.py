"""Objects of an embedded cluster: the columns of each kind, and the description of one object."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from evenhand.cluster.v1 import cluster_pb2 as pb
from evenhand_cli.render.amounts import NOTHING, span
from evenhand_cli.render.columns import Column, facts, table
from evenhand_cli.render.listing import Field
from shim_client.translate.fields import BadObjectError, instant_ms

Item = dict[str, Any]
FOLDED = 20
"""Smallest width of a column of sentences."""
LABELS_MAX = 12
"""Maximum number of labels or annotations that are shown of one object; `--output json` has all."""
TEXT_MAX = 200
"""Maximum number of characters of an annotation that are shown."""
ANNOUNCED = ("labels", "annotations")
GOOD = frozenset({"Running", "Ready", "Succeeded", "Complete"})
BAD = frozenset({"Failed"})


@dataclass(frozen=True, slots=True)
class World:
    """The facts that columns need in addition to the object itself: the pods, and the cluster's time."""

    now_ms: int
    pods: Sequence[Item] = ()
    owners: Mapping[str, str] | None = None
    """The uid of the Deployment of each ReplicaSet, by the uid of the ReplicaSet."""

    def pods_of(self, item: Item) -> list[Item]:
        """Return the pods that belong to a workload, directly or through its ReplicaSet."""
        uid = item["metadata"]["uid"]
        return [pod for pod in self.pods if uid in self._above(pod)]

    def pods_on(self, node: str) -> list[Item]:
        """Return the pods on a node that have not ended."""
        return [
            pod
            for pod in self.pods
            if pod["spec"].get("nodeName") == node and _phase(pod) not in {"Succeeded", "Failed"}
        ]

    def _above(self, pod: Item) -> set[str]:
        direct = {one.get("uid", "") for one in pod["metadata"].get("ownerReferences") or ()}
        further = {(self.owners or {}).get(uid, "") for uid in direct}
        return direct | further


def fields(kind: str, world: World, *, namespaces: bool) -> list[Field[Item]]:
    """Return the columns of a kind; with `namespaces`, the first column is the namespace."""
    first: list[Field[Item]] = []
    if namespaces:
        first = [Field("namespace", lambda one: one["metadata"]["namespace"], names=True)]
    name: Field[Item] = Field("name", lambda one: one["metadata"]["name"], names=True)
    age: Field[Item] = Field(
        "age", lambda one: _age(one, world.now_ms), right=True, order=lambda one: -_created(one)
    )
    own = COLUMNS[kind](world) if kind in COLUMNS else []
    return [*first, name, *own, age]


def _pod_fields(_: World) -> list[Field[Item]]:
    return [
        Field("status", lambda one: _styled(pod_status(one))),
        Field("node", lambda one: one["spec"].get("nodeName") or NOTHING, names=True),
        Field("priority", lambda one: str(one["spec"].get("priority", 0)), 2, right=True),
    ]


def _node_fields(world: World) -> list[Field[Item]]:
    def amount(kind: str) -> Callable[[Item], str]:
        return lambda one: str((one["status"].get("allocatable") or {}).get(kind, NOTHING))

    return [
        Field("status", lambda one: _styled(node_status(one))),
        Field(
            "pods",
            lambda one: str(len(world.pods_on(one["metadata"]["name"]))),
            right=True,
        ),
        Field("cpu", amount("cpu"), right=True),
        Field("memory", amount("memory"), right=True),
    ]


def _replicas_fields(world: World) -> list[Field[Item]]:
    return [
        Field("pods", lambda one: f"{len(_alive(world, one))}/{_wanted(one)}", right=True),
        Field("running", lambda one: str(_running(world, one)), right=True),
    ]


def _daemon_fields(world: World) -> list[Field[Item]]:
    return [
        Field("pods", lambda one: str(len(_alive(world, one))), right=True),
        Field("running", lambda one: str(_running(world, one)), right=True),
    ]


def _job_fields(world: World) -> list[Field[Item]]:
    return [
        Field("completions", _completions, right=True),
        Field("running", lambda one: str(_running(world, one)), right=True),
        Field("status", lambda one: _styled(_finished(one))),
    ]


def _budget_fields(_: World) -> list[Field[Item]]:
    def part(of: str, field: str) -> Callable[[Item], str]:
        return lambda one: str((one.get(of) or {}).get(field, NOTHING))

    return [
        Field("min available", part("spec", "minAvailable"), right=True),
        Field("max unavailable", part("spec", "maxUnavailable"), right=True),
        Field("allowed", part("status", "disruptionsAllowed"), right=True),
    ]


def _group_fields(world: World) -> list[Field[Item]]:
    return [
        Field("gang", _gang_size, right=True),
        Field("pods", lambda one: str(len(_named_by(world, one))), right=True),
    ]


def _gang_size(item: Item) -> str:
    """Return the minimum number of pods that are placed together.

    Return "" for a group whose pods are placed one by one.
    """
    gang = (item["spec"].get("schedulingPolicy") or {}).get("gang") or {}
    return str(gang.get("minCount", NOTHING))


def _named_by(world: World, group: Item) -> list[Item]:
    """Return the pods that name a PodGroup."""
    of = (group["metadata"]["namespace"], group["metadata"]["name"])
    return [pod for pod in world.pods if of == (pod["metadata"]["namespace"], _group_name(pod))]


def _group_name(pod: Item) -> str:
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName", ""))


def _class_fields(_: World) -> list[Field[Item]]:
    return [
        Field("value", lambda one: f"{one.get('value', 0):,}", right=True),
        Field("default", lambda one: "yes" if one.get("globalDefault") else NOTHING),
        Field("preemption", lambda one: str(one.get("preemptionPolicy") or "PreemptLowerPriority")),
    ]


def _map_fields(_: World) -> list[Field[Item]]:
    return [Field("keys", lambda one: str(len(one.get("data") or {})), right=True)]


COLUMNS: Mapping[str, Callable[[World], list[Field[Item]]]] = {
    "ConfigMap": _map_fields,
    "DaemonSet": _daemon_fields,
    "Deployment": _replicas_fields,
    "Job": _job_fields,
    "Node": _node_fields,
    "Pod": _pod_fields,
    "PodDisruptionBudget": _budget_fields,
    "PodGroup": _group_fields,
    "PriorityClass": _class_fields,
    "ReplicaSet": _replicas_fields,
    "StatefulSet": _replicas_fields,
}


def description(item: Item, events: Sequence[pb.Event], now_ms: int, width: int) -> RenderableType:
    """Return the description of an object: facts, conditions, and its last events."""
    metadata = item["metadata"]
    title = Text.assemble((metadata["name"], "key"), (f"  {item['kind']}", "heading"))
    if metadata.get("namespace"):
        title.append(f"  namespace {metadata['namespace']}", style="faint")
    parts: list[RenderableType] = [title, facts(list(_facts(item, now_ms)))]
    conditions = (item.get("status") or {}).get("conditions") or []
    if conditions:
        parts += [Text("\nconditions", style="heading"), _conditions(conditions, width)]
    parts.append(Text("\nevents", style="heading"))
    parts.append(events_table(events, now_ms, width) if events else Text("none"))
    return Group(*parts)


def events_table(
    events: Sequence[pb.Event],
    now_ms: int,
    width: int,
    *,
    about: bool = False,
    headers: bool = True,
) -> RenderableType:
    """Return a table of events. With `about`, a column names the object of each event."""
    columns = [
        Column("age", [span(max(0, now_ms - one.last_at_ms)) for one in events], right=True),
        Column("reason", [Text(one.reason, style="bad" if one.warning else "") for one in events]),
        Column("times", [str(one.count) for one in events], 2, right=True),
    ]
    if about:
        names = [event_subject(one) for one in events]
        columns.insert(1, Column("object", names, names=True))
    columns.append(Column("message", [one.message for one in events], least=FOLDED))
    return table(columns, width, noted=False, headers=headers)


def event_subject(one: pb.Event) -> str:
    """Return the object of an event as `KIND/NAMESPACE/NAME`, without the namespace for kinds that have no namespaces."""
    about = one.about
    return "/".join(filter(None, (about.kind, about.namespace, about.name)))


def pod_status(pod: Item) -> str:
    """Return the state of a pod in one word."""
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if _phase(pod) == "Pending" and (pod["spec"].get("schedulingGates") or ()):
        return "Gated"
    return _phase(pod)


def node_status(node: Item) -> str:
    """Return whether a node takes pods."""
    return "Cordoned" if (node.get("spec") or {}).get("unschedulable") else "Ready"


def _facts(item: Item, now_ms: int) -> Iterator[tuple[str, str | Text]]:
    metadata, spec = item["metadata"], item.get("spec") or {}
    yield "created", f"{metadata.get('creationTimestamp', NOTHING)}, {_age(item, now_ms)} ago"
    yield "uid", metadata["uid"]
    for owner in metadata.get("ownerReferences") or ():
        yield "belongs to", f"{owner.get('kind')}/{owner.get('name')}"
    for field in ANNOUNCED:
        yield from _marks(field, metadata.get(field) or {})
    if item["kind"] == "Pod":
        yield from _pod_facts(item, spec)
    elif item["kind"] == "Node":
        yield from _node_facts(item, spec)
    else:
        for key, value in (*spec.items(), *_others(item)):
            if isinstance(value, str | int | bool):
                yield str(key), str(value)


def _node_facts(item: Item, spec: Item) -> Iterator[tuple[str, str | Text]]:
    yield "status", _styled(node_status(item))
    for kind, amount in (item["status"].get("allocatable") or {}).items():
        yield str(kind), str(amount)
    for taint in spec.get("taints") or ():
        yield "taint", f"{taint.get('key')}={taint.get('value', '')}:{taint.get('effect')}"


def _others(item: Item) -> Iterator[tuple[str, Any]]:
    for key in ("value", "globalDefault", "preemptionPolicy"):
        if key in item:
            yield key, item[key]
    for key, value in (item.get("status") or {}).items():
        yield f"status.{key}", value


def _pod_facts(item: Item, spec: Item) -> Iterator[tuple[str, str | Text]]:
    yield "status", _styled(pod_status(item))
    yield "node", spec.get("nodeName") or NOTHING
    yield "scheduler", str(spec.get("schedulerName"))
    name = spec.get("priorityClassName")
    yield "priority", f"{spec.get('priority', 0)}{f' ({name})' if name else ''}"
    for container in spec.get("containers") or ():
        requests = (container.get("resources") or {}).get("requests") or {}
        amounts = ", ".join(f"{kind} {amount}" for kind, amount in requests.items())
        yield "container", f"{container.get('name', '?')}: {amounts or 'no requests'}"


def _marks(field: str, marks: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in list(marks.items())[:LABELS_MAX]:
        yield field.removesuffix("s"), f"{key}={value[:TEXT_MAX]}"
    if len(marks) > LABELS_MAX:
        yield field, f"and {len(marks) - LABELS_MAX} more: --output json"


def _conditions(conditions: Sequence[Item], width: int) -> RenderableType:
    columns = (
        Column("type", [str(one.get("type", "")) for one in conditions]),
        Column("status", [str(one.get("status", "")) for one in conditions]),
        Column("reason", [str(one.get("reason") or NOTHING) for one in conditions]),
        Column("message", [str(one.get("message") or NOTHING) for one in conditions], least=FOLDED),
    )
    return table(columns, width, noted=False)


def _phase(pod: Item) -> str:
    return str(pod["status"].get("phase", "Pending"))


def _alive(world: World, item: Item) -> list[Item]:
    return [
        pod
        for pod in world.pods_of(item)
        if not pod["metadata"].get("deletionTimestamp") and _phase(pod) in {"Pending", "Running"}
    ]


def _running(world: World, item: Item) -> int:
    return sum(_phase(pod) == "Running" for pod in _alive(world, item))


def _wanted(item: Item) -> int:
    return int((item.get("spec") or {}).get("replicas", 1))


def _completions(item: Item) -> str:
    spec, done = item["spec"], (item.get("status") or {}).get("succeeded", 0)
    return f"{done}/{spec.get('completions', spec.get('parallelism', 1))}"


def _finished(item: Item) -> str:
    conditions = (item.get("status") or {}).get("conditions") or []
    return str(conditions[0]["type"]) if conditions else "Running"


def _styled(word: str) -> Text:
    return Text(word, style="good" if word in GOOD else "bad" if word in BAD else "warn")


def _created(item: Item) -> int:
    try:
        return instant_ms(item["metadata"], "creationTimestamp")
    except BadObjectError:
        return 0


def _age(item: Item, now_ms: int) -> str:
    return span(max(0, now_ms - _created(item)))
