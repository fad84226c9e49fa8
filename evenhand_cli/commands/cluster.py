"""The commands `evenhand cluster ...`: changes of a running embedded cluster, and views of its objects."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from evenhand.cluster.v1 import cluster_pb2 as pb
from evenhand_cli import completion, terminal
from evenhand_cli.embedded import manifests
from evenhand_cli.embedded.client import Client, Item, asks_cluster, check_size, scope, space
from evenhand_cli.embedded.kinds import SHORT, plural, target_of
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.lists import NoHeaders, Shape, sorting, write_listing
from evenhand_cli.output import Form, Output, plain, show, word, write
from evenhand_cli.render.fits import Pointer
from evenhand_cli.render.listing import Listing, none_of
from evenhand_cli.render.objects import (
    World,
    description,
    event_subject,
    events_table,
    fields,
)
from evenhand_cli.render.words import plural as counted
from shim_client.embedded.admission import NAMESPACED

cluster = typer.Typer(
    help="Change and show a running embedded cluster.", no_args_is_help=True, add_completion=False
)

WITH_PODS = frozenset({"Node", "Deployment", "ReplicaSet", "StatefulSet", "Job", "DaemonSet"})
"""The kinds of objects whose tables have columns that count pods."""
EVENTS_SHOWN = 10
EVENTS_MAX = 100
BAD = frozenset({pb.OUTCOME_REFUSED, pb.OUTCOME_MISSING})

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE", help="Files or directories with manifests; - is the standard input."
    ),
]
Words = Annotated[
    list[str],
    typer.Argument(
        metavar="KIND NAME",
        help="Kind and names, such as `pod a b` or `pod/a pod/b`.",
        autocompletion=completion.words(map(plural, SHORT)),
    ),
]
Node = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", metavar="NAME", help="Namespace of the objects; `default` when needed."
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Also evict pods that no workload creates again; these are lost."),
]


@cluster.command()
@asks_cluster
def apply(client: Client, files: Files, output: Output = Form.TABLE) -> None:
    """Create the objects of manifests, or change those that exist.

    Each object is applied separately; the exit code is 1 when one was refused.

    Examples:
        evenhand cluster apply pods.yaml
        evenhand cluster apply more/ node.yaml
        kubectl get nodes -o yaml | evenhand cluster apply -

    """
    found = manifests.read(files)
    request = pb.ApplyObjectsRequest(
        manifests=[pb.Manifest(json=manifests.as_json(one)) for one in found]
    )
    check_size(request)
    results = client.ask(client.stub.ApplyObjects, request).results
    _tell_results(results, output, [one.place for one in found])


@cluster.command()
@asks_cluster
def delete(
    client: Client,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KIND NAME", help="Kind and names, such as `pod a b` or `pod/a pod/b`."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Delete the objects of a file or directory of manifests; - is the standard input.",
        ),
    ] = None,
    namespace: Namespace = "",
    output: Output = Form.TABLE,
) -> None:
    """Delete objects, and the objects that belong to them.

    Examples:
        evenhand cluster delete pod web-1 --namespace shop
        evenhand cluster delete deployment/front
        evenhand cluster delete --file pods.yaml

    """
    wanted = _references(words or [], file, namespace)
    results = client.ask(client.stub.DeleteObjects, pb.DeleteObjectsRequest(objects=wanted)).results
    missing = [one.object for one in results if one.outcome == pb.OUTCOME_MISSING]
    _tell_results(results, output, [""] * len(results), _advice(client, missing))


@cluster.command()
@asks_cluster
def cordon(client: Client, node: Node) -> None:
    """Let a node take no new pods; pods that run on it stay.

    Examples:
        evenhand cluster cordon worker-1

    """
    changed = _cordon(client, node, unschedulable=True)
    terminal.line(f"{node} is cordoned" if changed else f"{node} was cordoned already")


@cluster.command()
@asks_cluster
def uncordon(client: Client, node: Node) -> None:
    """Let a node take pods again.

    Examples:
        evenhand cluster uncordon worker-1

    """
    changed = _cordon(client, node, unschedulable=False)
    terminal.line(f"{node} takes pods again" if changed else f"{node} was not cordoned")


@cluster.command()
@asks_cluster
def drain(client: Client, node: Node, force: Force = False, output: Output = Form.TABLE) -> None:
    """Cordon a node and evict its pods, as PodDisruptionBudgets allow.

    Workloads create their pods again, on other nodes. Pods of DaemonSets stay. The exit code is 1 when other pods stay.

    Examples:
        evenhand cluster drain worker-1
        evenhand cluster drain worker-1 --force

    """
    request = pb.DrainNodeRequest(node=node, force=force)
    answer = client.ask(client.stub.DrainNode, request, lambda: client.missing("Node", "", node))
    if output.is_data:
        write(output, plain(answer))
    else:
        show(output, {}, lambda _: _drained(node, answer))
    if not all(one.may_stay for one in answer.left):
        raise typer.Exit(ExitCode.PROBLEM)


@cluster.command()
@asks_cluster
def scale(
    client: Client,
    words: Words,
    replicas: Annotated[
        int, typer.Option("--replicas", min=0, metavar="N", help="Number of pods that are wanted.")
    ],
    namespace: Namespace = "",
) -> None:
    """Set how many pods a Deployment, ReplicaSet, StatefulSet or Job wants.

    Examples:
        evenhand cluster scale deployment web --replicas 5
        evenhand cluster scale job/count --replicas 0 --namespace night

    """
    kind, name = _one(words)
    request = pb.ScaleObjectRequest(object=_reference(kind, namespace, name), count=replicas)
    answer = client.ask(
        client.stub.ScaleObject, request, lambda: client.missing(kind, namespace, name)
    )
    if answer.before == replicas:
        terminal.line(f"{kind}/{name} wanted {counted(replicas, 'pod')} already")
    else:
        terminal.line(f"{kind}/{name} wants {counted(replicas, 'pod')}, {answer.before:,} before")


@cluster.command()
@asks_cluster
def get(
    client: Client,
    words: Words,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", metavar="NAME", help="Only this namespace; all when not given."
        ),
    ] = "",
    sort_by: Annotated[str, sorting("name")] = "",
    no_headers: NoHeaders = False,
    output: Output = Form.TABLE,
) -> None:
    """List the objects of a kind, all of them or those with the given names.

    Examples:
        evenhand cluster get pods
        evenhand cluster get nodes -o json
        evenhand cluster get deployment web --namespace shop

    """
    kind, names = target_of(words)
    if namespace:
        client.check_namespace(namespace)
    found = client.objects(kind, namespace)
    for name in names:
        if all(one["metadata"]["name"] != name for one in found.items):
            raise client.missing(kind, namespace, name)
    rows = [one for one in found.items if not names or one["metadata"]["name"] in names]
    world = _world(client, kind, found.now_ms)
    listing = Listing(
        kind=plural(kind),
        rows=rows,
        fields=fields(kind, world, namespaces=kind in NAMESPACED and not namespace),
        name=_name,
        value=lambda one: one,
        none=none_of(kind, "evenhand cluster apply FILE creates them", namespace=namespace),
    )
    write_listing(listing, Shape(output, sort_by, not no_headers))


@cluster.command()
@asks_cluster
def describe(
    client: Client, words: Words, namespace: Namespace = "", output: Output = Form.TABLE
) -> None:
    """Show one object with its conditions and its last events.

    Examples:
        evenhand cluster describe pod web-1 --namespace shop
        evenhand cluster describe node/worker-1

    """
    kind, name = _one(words)
    here = scope(kind, namespace)
    answer = client.ask(
        client.stub.ListObjects, pb.ListObjectsRequest(kind=kind, namespace=here, name=name)
    )
    if not answer.objects_json:
        raise client.missing(kind, namespace, name)
    item = manifests.parsed(answer.objects_json[0])
    about = _reference(kind, here, name)
    told = client.ask(
        client.stub.ListEvents, pb.ListEventsRequest(about=about, limit=EVENTS_SHOWN)
    ).events
    value = {"object": item, "events": [plain(one) for one in told]}
    show(output, value, lambda console: description(item, told, answer.taken_at_ms, console.width))


@cluster.command()
@asks_cluster
def events(
    client: Client,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="KIND NAME", help="Only events on this object, or on this kind."),
    ] = None,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", metavar="NAME", help="Only this namespace; all when not given."
        ),
    ] = "",
    warnings: Annotated[bool, typer.Option("--warnings", help="Only warnings.")] = False,
    count: Annotated[
        int,
        typer.Option(
            "--count", min=1, metavar="N", help="Number of events; the latest ones are shown."
        ),
    ] = EVENTS_MAX,
    no_headers: NoHeaders = False,
    output: Output = Form.TABLE,
) -> None:
    """List events on the objects of the cluster, the latest last.

    Examples:
        evenhand cluster events --warnings
        evenhand cluster events pod web-1 --namespace shop

    """
    kind, names = target_of(words) if words else ("", [])
    if len(names) > 1:
        raise _too_many(words or [])
    if namespace:
        client.check_namespace(namespace)
    about = pb.ObjectReference(kind=kind, namespace=namespace, name=names[0] if names else "")
    request = pb.ListEventsRequest(about=about, warnings_only=warnings, limit=count)
    answer = client.ask(client.stub.ListEvents, request)
    none = none_of("event", namespace=namespace, warnings=warnings)
    listing: Listing[pb.Event] = Listing(
        kind="events",
        rows=answer.events,
        fields=(),
        name=event_subject,
        value=plain,
        none=none,
        draw=lambda rows, console, headers: events_table(
            rows, answer.taken_at_ms, console.width, about=True, headers=headers
        ),
    )
    write_listing(listing, Shape(output, "", not no_headers))


def _cordon(client: Client, node: str, *, unschedulable: bool) -> bool:
    request = pb.CordonNodeRequest(node=node, unschedulable=unschedulable)
    answer = client.ask(client.stub.CordonNode, request, lambda: client.missing("Node", "", node))
    return answer.changed


def _drained(node: str, answer: pb.DrainNodeResponse) -> RenderableType:
    done = f"{node} is cordoned; {counted(len(answer.evicted), 'pod')} evicted"
    lines: list[RenderableType] = [
        Text(done, style="good" if all(one.may_stay for one in answer.left) else "")
    ]
    lines += [Text(f"  evicted {one.namespace}/{one.name}") for one in answer.evicted]
    for one in answer.left:
        name = f"{one.pod.namespace}/{one.pod.name}"
        style = "" if one.may_stay else "warn"
        lines.append(Text(f"  left {name}: {one.because}", style=style))
    if not all(one.may_stay or one.needs_force for one in answer.left):
        lines.append(Pointer("when their budgets allow it", f"evenhand cluster drain {node}", ""))
    if any(one.needs_force for one in answer.left):
        command = f"evenhand cluster drain {node} --force"
        lines.append(Pointer("to evict pods without a workload", command, ""))
    return Group(*lines)


def _tell_results(
    results: Iterable[pb.ObjectResult],
    output: Form,
    places: list[str],
    advice: Callable[[pb.ObjectReference], str] = lambda _: "",
) -> None:
    """Write one line for each object, with its warnings.

    Raise typer.Exit with code 1 when an object was refused or is missing. `places` has, for each result, the file of
    the object.
    """
    found = list(results)
    if output.is_data:
        write(output, {"results": [plain(one) for one in found]})
    elif output is Form.NAME:
        for one in found:
            terminal.line(_subject(one.object))
    else:
        for one, place in zip(found, places, strict=True):
            _tell_result(one, place, advice)
    if any(one.outcome in BAD for one in found):
        raise typer.Exit(ExitCode.PROBLEM)


def _tell_result(
    one: pb.ObjectResult, place: str, advice: Callable[[pb.ObjectReference], str]
) -> None:
    subject = _subject(one.object)
    if one.outcome in BAD:
        fault = Fault(
            f"{subject} {_outcome(one)}: {one.message}",
            where=place,
            advice=advice(one.object),
        )
        terminal.show_fault(fault)
        return
    terminal.line(f"{subject} {_outcome(one)}")
    for warning in one.warnings:
        terminal.say(f"warning: {subject}: {warning}")


def _outcome(one: pb.ObjectResult) -> str:
    return (
        "not found"
        if one.outcome == pb.OUTCOME_MISSING
        else word(pb.Outcome.DESCRIPTOR, one.outcome)
    )


def _advice(
    client: Client, missing: list[pb.ObjectReference]
) -> Callable[[pb.ObjectReference], str]:
    """Return a function that returns advice on a missing object, such as similar names.

    The names are read from the cluster before this function returns.
    """
    told = {
        (one.kind, one.namespace, one.name): client.missing(
            one.kind, one.namespace, one.name
        ).advice
        for one in missing
    }
    return lambda one: told.get((one.kind, one.namespace, one.name), "")


def _references(words: list[str], file: Path | None, namespace: str) -> list[pb.ObjectReference]:
    """Return the objects that are named on the command line or described in a file.

    Raises Fault if names and a file are given, or neither of the two. Also raises Fault for an unknown kind, or for a
    file that cannot be read.
    """
    if bool(words) == (file is not None):
        raise Fault(
            "there is nothing to delete" if not words else "objects are named twice",
            where="KIND NAME and --file",
            advice="give one of them: `evenhand cluster delete pod NAME`, or --file FILE",
            code=ExitCode.USAGE,
        )
    if file is not None:
        refs = [one.ref() for one in reversed(manifests.read([file]))]
        return [_reference(ref.kind, ref.namespace, ref.name) for ref in refs]
    kind, names = target_of(words)
    if not names:
        raise Fault(
            f"there is no name of a {kind}",
            where=" ".join(words),
            advice=f"see what there is: evenhand cluster get {plural(kind)}",
            code=ExitCode.USAGE,
        )
    return [_reference(kind, namespace, name) for name in names]


def _reference(kind: str, namespace: str, name: str) -> pb.ObjectReference:
    return pb.ObjectReference(kind=kind, namespace=scope(kind, namespace), name=name)


def _one(words: list[str]) -> tuple[str, str]:
    """Return kind and name of the single object that the words name.

    Raises Fault for an unknown kind, or if the words do not have exactly one name.
    """
    kind, names = target_of(words)
    if len(names) != 1:
        raise _too_many(words)
    return kind, names[0]


def _too_many(words: list[str]) -> Fault:
    return Fault(
        "one object is needed",
        where=" ".join(words),
        advice="give kind and name, such as `pod web-1`",
        code=ExitCode.USAGE,
    )


def _world(client: Client, kind: str, now_ms: int) -> World:
    if kind not in WITH_PODS:
        return World(now_ms)
    pods = client.objects("Pod").items
    owners = {}
    if kind == "Deployment":
        for one in client.objects("ReplicaSet").items:
            for owner in one["metadata"].get("ownerReferences") or ():
                owners[one["metadata"]["uid"]] = owner["uid"]
    return World(now_ms, pods, owners)


def _name(item: Item) -> str:
    return "/".join(filter(None, (space(item), item["metadata"]["name"])))


def _subject(one: pb.ObjectReference) -> str:
    return f"{one.kind}/{one.name}" + (f" in {one.namespace}" if one.namespace else "")
