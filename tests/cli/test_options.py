"""Every option of every command that asks a core acts or is refused.

The command runs with and without the option against a prepared core: what was asked, what was written or how it ended must
differ. Other commands and options name the test that shows their effect. An option without an entry fails.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from evenhand.v1 import decisions_pb2, inspect_pb2, reports_pb2, watch_pb2
from evenhand_cli.app import app
from tests.cli import samples
from tests.cli.fake import FakeCore, running
from tests.cli.run import evenhand
from tests.cli.test_command_line import leaves
from tests.cli.test_listings import APPLICATIONS, NODES, PODS, TREE

Row = tuple[str, ...]

CONNECTION: dict[str, Row] = {
    "--core": ("127.0.0.1:1",),
    "--context": ("nowhere",),
    "--tls-ca": ("/nowhere/ca",),
    "--tls-cert": ("/nowhere/cert",),
    "--tls-key": ("/nowhere/key",),
    "--token-file": ("/nowhere/token",),
}
SEEN_ELSEWHERE = {"--tls-server-name": "test_contexts", "--timeout": "test_faults"}
"""Options whose effect needs a core with TLS, or one that is slow: the module that shows it."""
OUTPUT: dict[str, Row] = {"--output": ("json",)}
LISTING: dict[str, Row] = {**OUTPUT, "--sort-by": ("nothing",), "--no-headers": ()}
TABLE: dict[str, dict[str, Row]] = {
    "partitions": LISTING,
    "queues": {
        **LISTING,
        "--partition": ("other",),
        "--waiting": (),
        "--unmet": (),
        "--settings": (),
    },
    "apps": {
        **LISTING,
        "--partition": ("other",),
        "--queue": ("root.x",),
        "--namespace": ("science",),
        "--user": ("ada",),
        "--state": ("failed",),
        "--waiting": (),
    },
    "nodes": {
        **LISTING,
        "--partition": ("other",),
        "--label": ("zone=b",),
        "--state": ("cordoned",),
    },
    "allocations": {
        **LISTING,
        "--partition": ("other",),
        "--queue": ("root.x",),
        "--app": ("front",),
        "--node": ("gpu-2",),
        "--namespace": ("science",),
        "--user": ("ada",),
        "--label": ("team=nlp",),
        "--state": ("waiting",),
        "--priority": (">5",),
        "--protection": ("firm",),
        "--asks": (),
        "--waiting": (),
        "--foreign": (),
    },
    "decisions": {
        **LISTING,
        "--partition": ("other",),
        "--policy": ("quota",),
        "--queue": ("root.x",),
        "--open": (),
        "--since": ("10m",),
        "--lost-work": (),
        "--shadow": (),
        "--count": ("3",),
    },
    "doctor": {**OUTPUT, "--partition": ("other",)},
    "events": {"--since": ("3",), "--kind": ("placed",), "--count": ("1",), "--output": ("json",)},
    "version": OUTPUT,
}
FOLLOWED = {"--watch", "--interval", "--follow"}
"""Options of commands that go on until they are ended: test_listings, test_decisions and test_looking show them."""


ELSEWHERE = {
    "demo": ("--cluster --config --watch --listen --limit --picture --output", "cli/test_demo"),
    "serve": (
        "--config --listen --metrics --health --decision-log --trace --insecure --tls-cert --tls-key --tls-client-ca"
        " --tokens --roles",
        "cli/test_identity, record/test_serve",
    ),
    "shim": (
        "--cluster --kubernetes --kubeconfig --namespace --instance --health --qps --burst --stop --no-wait",
        "cli/test_shim_ends, kubernetes",
    ),
    "explain": ("--partition --output", "cli/test_looking"),
    "simulate ask": (
        "--queue --namespace --priority --classes --partition --output",
        "cli/test_simulate",
    ),
    "simulate config": ("--output --all", "cli/test_simulate"),
    "health": ("--manager --core-only --output", "cli/test_manager_away, compose/test_image"),
    "context list": ("--output --sort-by --no-headers", "cli/test_contexts"),
    "context show": ("--output", "cli/test_contexts"),
    "context use": ("", "cli/test_contexts"),
    "context set": ("", "cli/test_contexts"),
    "context delete": ("", "cli/test_contexts"),
    "help": ("", "cli/test_command_line"),
    "config check": ("--ignore --output", "cli/test_config_maps"),
    "config apply": ("--dry-run --ignore --output", "cli/test_config_maps, cli/test_end_to_end"),
    "config show": ("--output", "cli/test_end_to_end"),
    "replay": ("--log --compare --until --explain --output", "record/test_replay"),
    "log verify": ("--output", "record/test_replay"),
}
"""Commands that need more than prepared answers: their options, and the tests that run them."""


def options(command: Any) -> set[str]:
    """Return the long names of a command's options."""
    longest = (max(one.opts, key=len) for one in command.params)
    return {one for one in longest if one.startswith("--")}


@pytest.fixture(scope="module")
def core() -> Iterator[FakeCore]:
    events = [watch_pb2.EventRecord(number=n, kind="placed", object=f"p{n}") for n in (1, 2)]
    prepared = FakeCore(
        ListAllocations=inspect_pb2.ListAllocationsResponse(allocations=PODS),
        ListNodes=inspect_pb2.ListNodesResponse(nodes=NODES),
        ListApplications=inspect_pb2.ListApplicationsResponse(applications=APPLICATIONS),
        ListPartitions=inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()]),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=TREE),
        ListQueueSettings=inspect_pb2.ListQueueSettingsResponse(),
        ListDecisions=decisions_pb2.ListDecisionsResponse(),
        ListShadowDecisions=decisions_pb2.ListShadowDecisionsResponse(),
        GetLostWork=reports_pb2.GetLostWorkResponse(),
        GetUnmetGuarantees=reports_pb2.GetUnmetGuaranteesResponse(),
        CheckConsistency=inspect_pb2.CheckConsistencyResponse(checks=["usage"]),
        ServerInfo=inspect_pb2.ServerInfoResponse(version="1"),
        WatchEvents=[watch_pb2.WatchEventsResponse(events=events)],
    )
    with running(prepared) as started:
        yield started


def test_every_option_has_an_entry() -> None:
    connection = {*CONNECTION, *SEEN_ELSEWHERE}
    for path, command in leaves(get_command(app)):
        own = options(command) - connection
        if path in TABLE:
            assert own - FOLLOWED == set(TABLE[path]), path
        else:
            assert own == set(ELSEWHERE[path][0].split()) - connection, path


@pytest.mark.parametrize(
    ("command", "option", "values"),
    [
        (command, option, values)
        for command, own in TABLE.items()
        for option, values in {**own, **CONNECTION}.items()
    ],
)
def test_an_option_acts_or_is_refused(
    core: FakeCore, command: str, option: str, values: Row
) -> None:
    def outcome(*given: str) -> tuple[object, ...]:
        del core.requests[:]
        ended = evenhand(command, "--core", core.address, *given, width=200)
        return ended.code, ended.out, ended.err, [str(one) for one in core.requests]

    assert outcome() != outcome(option, *values)
