"""The command `evenhand explain`.

The command shows why an ask waits, where a pod runs, the settings of a queue, or the text of a rule.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from evenhand.v1 import (
    explain_pb2,
    explain_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
)
from evenhand_cli import completion, terminal
from evenhand_cli.commands.filters import AnyPartition
from evenhand_cli.commands.past import past_decision, past_pod
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.faults import Fault
from evenhand_cli.named_pods import belongs_to, is_pod, meant, speaking
from evenhand_cli.near import MATCHES_MAX, near_matches
from evenhand_cli.output import Form, Output, plain, plain_all, show
from evenhand_cli.paging import every
from evenhand_cli.render import history
from evenhand_cli.render.explanation import explanation
from evenhand_cli.render.fits import Pointer
from evenhand_cli.render.queues import rows as queue_rows
from evenhand_cli.render.rules import rule
from evenhand_cli.render.tables import WAITING_STATES, pod_name
from evenhand_cli.render.words import instant, plural
from evenhand_cli.render.workloads import Workload, workload
from evenhand_cli.rules import is_rule_id, rules

UNKNOWN = (explain_pb2.SUBJECT_KIND_UNKNOWN, explain_pb2.SUBJECT_KIND_UNSPECIFIED)

WITH_NODE = (inspect_pb2.ALLOCATION_STATE_ALLOCATED, inspect_pb2.ALLOCATION_STATE_RELEASING)
MEMBERS_EXPLAINED_MAX = 32
"""Maximum number of running pods of a workload that are explained in one answer."""

NUMBERS = re.compile(r"[0-9]+")
LIST_ADVICE = "list all keys with `evenhand allocations --asks`, `evenhand apps`, `evenhand nodes`, `evenhand queues`"
POD_ADVICE = (
    "a pod that has ended, waits for its scheduling gates or was refused by the shim is no ask:"
    " its own events say why (kubectl describe pod)"
)


@asks_core
def explain(
    core: Core,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help="Key of an ask or allocation; name of a pod (NAMESPACE/NAME or NAME), an application, a node or a "
            "queue (root.a.b); or id of a decision or a rule, such as G4.",
            autocompletion=completion.keys,
        ),
    ],
    partition: AnyPartition = "",
    application: Annotated[
        bool,
        typer.Option(
            "--application",
            help="Explain the application with this name, even when a gang has the same name.",
        ),
    ] = False,
    all_: Annotated[
        bool, typer.Option("--all", help="Show everything: all victims, nodes and rules.")
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Say why an ask waits, where an allocation runs, what is set for a queue, or what a rule says.

    For a queue the answer has the amount that it may claim, and where each of its settings comes from. When a gang and an
    application have the same name, that name means the gang. An id in capital letters, such as G4, means a rule; no core
    is needed to explain it.

    Examples:
        evenhand explain science/train-1
        evenhand explain root.research
        evenhand explain gpu-1 --output json
        evenhand explain G4

    """
    if _explained_rule(key, output, application=application):
        return
    _explain_object(core, key, partition, output, application=application, all_=all_)


def _explain_object(
    core: Core, key: str, partition: str, output: Form, *, application: bool, all_: bool
) -> None:
    """Write why an ask waits, where an allocation runs, or what is set for a queue."""
    answer, pods = _explained(core, key, partition), list[inspect_pb2.Allocation]()
    if application:
        _check_application(answer, key)
    if answer.kind in UNKNOWN:
        found = _allocations(core, partition)
        keys, pods = meant(found, key)
        if not keys and _explained_past(core, key, partition, output, full=all_):
            return
        if len(keys) != 1:
            raise _unknown(core, key, partition, found)
        answer = _explained(core, keys[0], partition)
    also: Pointer | None = None
    if answer.gang_member and not application:
        also = Pointer(f"application {key}", f"evenhand explain {key} --application")
        answer = _explained(core, answer.gang_member, answer.partition)
        if answer.HasField("placed"):
            found = _allocations(core, answer.partition, answer.placed.application_id)
            pods = [one for one in found if belongs_to(one, key)]
    full = all_ or output is Form.WIDE
    if _are_running(pods):
        _show_workload(core, key, answer, pods, output=output, full=full, also=also)
        return
    _say_of_whom(pods)
    show(
        output,
        plain(answer),
        lambda console: explanation(answer, key, console.width, full=full, also=also),
    )


def _explained_past(core: Core, name: str, partition: str, output: Form, *, full: bool) -> bool:
    """Write the history's facts about a pod that has ended, and the decision that evicted the pod.

    Return False if the history has nothing about the pod.
    """
    found = past_pod(core, name, partition)
    if found is None:
        return False
    decision_id = found.pods[0].decision_id
    decision = past_decision(core, decision_id) if decision_id else None
    lines = list(decision.lines) if decision is not None else []
    terminal.say("from the history: the core does not know this pod now")
    show(
        output,
        plain(found) | {"lines": lines},
        lambda _: history.pods(name, found, lines, full=full or output is Form.WIDE),
    )
    return True


def _check_application(answer: explain_pb2.ExplainResponse, name: str) -> None:
    """Raise Fault when the answer is about something other than an application."""
    if answer.kind != explain_pb2.SUBJECT_KIND_APPLICATION:
        raise Fault(
            f"there is no application `{name}`",
            where="--application",
            advice="list them with `evenhand apps`",
        )


def _explained_rule(name: str, output: Form, *, application: bool) -> bool:
    """Write the text of a rule.

    Return False when the name does not have the form of a rule's id. Raises Fault for an unknown id.
    """
    if application or not is_rule_id(name):
        return False
    found = rules().get(name)
    if found is None:
        raise Fault(f"there is no rule `{name}`", where="KEY", advice=_near_rules(name))
    show(output, found._asdict(), lambda console: rule(found, console.width))
    return True


def _near_rules(name: str) -> str:
    """Return a hint for the unknown rule id `name`.

    The hint names the rules whose ids begin with the first letter of `name`. If there are no such rules, the hint names
    the first letters of all rule ids.
    """
    alike = [one for one in rules() if one[0] == name[0]]
    if alike:
        return f"rules {alike[0]} to {alike[-1]} begin with {name[0]}"
    return f"rules begin with {', '.join(sorted({one[0] for one in rules()}))}"


def _are_running(pods: list[inspect_pb2.Allocation]) -> bool:
    """Return whether there are several pods, and all these pods have a node."""
    return len(pods) > 1 and all(one.state in WITH_NODE for one in pods)


def _show_workload(
    core: Core,
    name: str,
    first: explain_pb2.ExplainResponse,
    pods: list[inspect_pb2.Allocation],
    *,
    output: Form,
    full: bool,
    also: Pointer | None,
) -> None:
    """Write one answer for all pods of a gang or another workload. Each of these pods has a node.

    JSON has the `first` answer, and the list of all pods under the key `members`.
    """
    looked_at = pods[:MEMBERS_EXPLAINED_MAX]
    answers = [_explained(core, one.allocation_key, first.partition) for one in looked_at]
    bare = name.rpartition("/")[2]
    is_gang = any(one.job_key == bare for one in pods)
    # An answer without a placement means that the pod has ended since it was listed.
    answers = [one for one in answers if one.HasField("placed")] or [first]
    found = Workload(name, is_gang, pods, answers)
    show(
        output,
        plain(first) | {"members": plain_all(pods)},
        lambda _: workload(found, full=full, also=also),
    )


def _say_of_whom(pods: list[inspect_pb2.Allocation]) -> None:
    """Print on the error stream which of several pods the answer explains, and how many of these pods wait."""
    for key in speaking(pods):
        waiting = sum(one.state in WAITING_STATES for one in pods)
        speaks = next(one for one in pods if one.allocation_key == key)
        terminal.say(
            f"{plural(len(pods), 'pod')}, {waiting:,} waiting, {len(pods) - waiting:,} with a node;"
            f" this is {pod_name(speaks) or key}"
        )


def _explained(core: Core, key: str, partition: str) -> explain_pb2.ExplainResponse:
    stub = explain_pb2_grpc.ExplainServiceStub(core.channel)
    return core.ask(stub.Explain, explain_pb2.ExplainRequest(partition=partition, key=key))


def _unknown(
    core: Core, key: str, partition: str, allocations: Iterable[inspect_pb2.Allocation]
) -> Fault:
    """Return the fault for a name that belongs to no object, or to several pods."""
    pods = [pod_name(one) for one in allocations if is_pod(one, key)]
    where = f"partition {partition}" if partition else f"core at {core.address}"
    if pods:
        several = " or ".join(f"`{one}`" for one in sorted(pods)[:MATCHES_MAX])
        what = f"{plural(len(pods), 'pod', 'have')} the name `{key}`"
        return Fault(what, where=where, advice=f"say which: {several}")
    names = [one for one in _names(core, partition, allocations) if not _is_sibling(one, key)]
    near = near_matches(key, names)
    return Fault(
        f"nothing has the key `{key}`: no ask, allocation, pod, application, node or queue",
        where=where,
        advice="\n".join(filter(None, [near, LIST_ADVICE, POD_ADVICE, _memory(core)])),
    )


def _is_sibling(name: str, asked: str) -> bool:
    """Return whether two names differ only in numbers.

    The pods of one workload have names that differ only in numbers. Such names are not offered as corrections of a
    misspelling.
    """
    return "/" in asked and name != asked and NUMBERS.sub("", name) == NUMBERS.sub("", asked)


def _memory(core: Core) -> str:
    """Return since when the core has recorded decisions, and where earlier decisions can be found.

    Return "" if the core does not answer.
    """
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    try:
        started = core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest()).started_at_ms
    except Fault:
        return ""  # The answer is complete without this hint.
    return (
        f"decisions are known since the core started, {instant(started)}; of what was evicted before, the files of"
        " `evenhand serve --decision-log` and `--trace` tell: evenhand replay TRACE --explain KEY"
    )


def _allocations(
    core: Core, partition: str, application_id: str = ""
) -> list[inspect_pb2.Allocation]:
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListAllocationsRequest(
        partition=partition,
        application_id=application_id,
        include_asks=True,
        include_foreign=not application_id,
    )
    return every(core, stub.ListAllocations, request, lambda page: page.allocations)


def _names(
    core: Core, partition: str, allocations: Iterable[inspect_pb2.Allocation]
) -> Iterator[str]:
    """Yield every name that the user may see, so that similar names can be suggested.

    For a pod without a name, yield its key.
    """
    for one in allocations:
        yield pod_name(one) or one.allocation_key
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    apps = inspect_pb2.ListApplicationsRequest(partition=partition)
    for app in every(core, stub.ListApplications, apps, lambda page: page.applications):
        yield app.application_id
    tree = core.ask(stub.GetQueueTree, inspect_pb2.GetQueueTreeRequest(partition=partition)).tree
    yield from (row.queue.path for row in queue_rows(tree.root, {}))
    nodes = inspect_pb2.ListNodesRequest(partition=partition)
    try:
        listed = every(core, stub.ListNodes, nodes, lambda page: page.nodes)
    except Fault:
        return  # A viewer may not see nodes, so that only the names above are yielded.
    yield from (node.node_id for node in listed)
