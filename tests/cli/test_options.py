"""Every option of every command has an effect or is refused; the parser itself lists commands and options.

Where a core with prepared answers is enough, the command runs with and without the option; its requests, its output
or its exit code must differ. For commands that serve, join or replay, a table names a test that uses the option; it
is also checked that this test exists and uses the option. An option without an entry fails, and so does an entry
without an option.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from typer.main import get_command

from evenhand.v1 import (
    config_pb2,
    decisions_pb2,
    inspect_pb2,
    reports_pb2,
    simulate_pb2,
    watch_pb2,
)
from evenhand_cli.app import app
from evenhand_cli.connect import PANEL
from tests.cli import samples
from tests.cli.fake import Answer, Failure, FakeCore, Turns, running
from tests.cli.run import evenhand
from tests.cli.test_command_line import leaves
from tests.cli.test_listings import APPLICATIONS, NODES, PODS, TREE
from tests.cli.test_simulate import foreseen, pod, priority_class
from tests.record.test_log import write
from tests.record.values import decided

Row = tuple[str, ...]

TESTS = Path(__file__).parents[1]
FOLDER = "FOLDER"
"""The placeholder for the folder of the files below."""
WARNED = "quota-not-enabled"
CONTEXTS = {
    "current": "here",
    "contexts": {"here": {"core": "127.0.0.1:1"}, "there": {"core": "127.0.0.1:2"}},
}

WORDS: dict[str, Row] = {
    "explain": ("uid-of-train-1",),
    "simulate ask": (f"{FOLDER}/pod.yaml",),
    "simulate config": (f"{FOLDER}/queues.yaml",),
    "config check": (f"{FOLDER}/queues.yaml",),
    "config apply": (f"{FOLDER}/queues.yaml",),
    "config diff": (f"{FOLDER}/queues.yaml",),
    "context show": ("here",),
    "context set": ("here",),
    "log verify": (f"{FOLDER}/log",),
    "history queue": ("root.a",),
    "history pod": ("shop/web-1",),
    "config rollback": ("2",),
    "partition move": ("gpu", "--to", "b"),
}
"""Arguments without which a command does nothing."""

CONNECTION: dict[str, Row] = {
    "--core": ("127.0.0.1:1",),
    "--cores": ("/nowhere/cores.yaml",),
    "--context": ("nowhere",),
    "--tls-ca": ("/nowhere/ca",),
    "--tls-cert": ("/nowhere/cert",),
    "--tls-key": ("/nowhere/key",),
    "--tls-server-name": ("another",),
    "--token-file": ("/nowhere/token",),
    "--at-least": ("nowhere",),
}
OUTPUT: dict[str, Row] = {"--output": ("json",)}
LISTING: dict[str, Row] = {
    **OUTPUT,
    "--sort-by": ("nothing",),
    "--no-headers": (),
    "--watch": ("--interval", "0.1"),
    "--interval": ("5",),
}
TABLE: dict[str, dict[str, Row]] = {
    "partitions": LISTING,
    "queues": {
        **OUTPUT,
        "--sort-by": ("nothing",),
        "--no-headers": (),
        "--watch": (),
        "--partition": ("other",),
        "--waiting": (),
        "--unmet": (),
        "--all": (),
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
        "--reason": ("queue-limit",),
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
        "--reason": ("queue-limit",),
        "--foreign": (),
        "--summary": (),
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
        "--follow": (),
        "--all": (),
        "--count": ("3",),
    },
    "explain": {**OUTPUT, "--partition": ("other",), "--all": (), "--application": ()},
    "simulate ask": {
        **OUTPUT,
        "--queue": ("root.x",),
        "--namespace": ("science",),
        "--priority": ("5",),
        "--classes": (f"{FOLDER}/classes.yaml",),
        "--partition": ("other",),
    },
    "simulate config": {**OUTPUT, "--all": (), "--ignore": (WARNED,)},
    "doctor": {**OUTPUT, "--partition": ("other",)},
    "health": {**OUTPUT, "--manager": ("other",), "--core-only": ()},
    "events": {
        **OUTPUT,
        "--since": ("3",),
        "--kind": ("placed",),
        "--count": ("1",),
        "--follow": (),
    },
    "version": OUTPUT,
    "config check": {**OUTPUT, "--ignore": (WARNED,)},
    "config apply": {**OUTPUT, "--ignore": (WARNED,), "--dry-run": (), "--all": (), "--force": ()},
    "config diff": OUTPUT,
    "config show": OUTPUT,
    "context list": {**OUTPUT, "--sort-by": ("-core",), "--no-headers": ()},
    "context show": OUTPUT,
    "context set": {
        "--core": ("127.0.0.1:3",),
        "--tls-ca": ("ca",),
        "--tls-cert": ("cert",),
        "--tls-key": ("key",),
        "--tls-server-name": ("another",),
        "--token-file": ("token",),
    },
    "log verify": OUTPUT,
}
"""Values with which an option is given."""

SHIM_PLACE = "cli/test_shim_options.py::test_what_is_given_reaches_the_shim"
SERVED = (
    "cli/test_serve_options.py::test_a_core_reads_and_writes_the_files_and_ports_that_are_named"
)
SECURED = "cli/test_serve_options.py::test_the_name_in_a_certificate_has_its_role"
OF_CLUSTER = "cli/test_cluster.py::"
FOLLOWED = "cli/test_followers.py::"
MOVED = "cli/test_partition_move.py::test_a_partition_moves_by_a_table_that_is_printed_and_back"
SPREAD = "cli/test_spread.py::"
CONSOLE = "console/test_command.py::"
CONSOLE_PLACE = CONSOLE + "test_what_is_given_reaches_the_console"
CONSOLE_CORES = CONSOLE + "test_a_context_and_a_table_of_cores_are_those_of_every_command"
CONSOLE_TLS = CONSOLE + "test_tls_is_that_of_every_command"
LOGGED = "cli/test_log.py::test_a_log_over_tls_with_credentials"
LEASE = "cli/test_shim_election.py::test_what_is_given_of_the_lease_reaches_the_shim"
PAST = "questions/test_history_questions.py::"
NARROWED = PAST + "test_times_and_filters_narrow_what_is_shown"
WHOLE = PAST + "test_all_shows_every_row"
ELSEWHERE = PAST + "test_another_partition_has_no_history"
ROLLED_BACK = PAST + "test_a_rollback_is_data_and_its_warnings_may_be_silenced"
QUERIED = "record/test_log_query.py::test_the_command_filters_by_everything_that_it_names"
PERIOD = {"--since": NARROWED, "--until": NARROWED, "--output": NARROWED}

NAMED: dict[str, dict[str, str]] = {
    "demo": {
        "--cluster": "cli/test_demo.py::test_the_numbers_of_a_known_cluster",
        "--config": "cli/test_demo.py::test_another_configuration_wins_over_the_clusters",
        "--watch": "cli/test_demo.py::test_watching_ends_by_a_signal_in_order",
        "--listen": "cli/test_demo.py::test_a_port_in_use_is_said",
        "--cluster-listen": "cli/test_cluster.py::test_a_demonstration_that_is_watched_answers_too",
        "--limit": "cli/test_demo.py::test_a_limit_counts_unless_it_is_watched",
        "--picture": "cli/test_demo.py::test_a_picture_is_drawn_of_a_real_run",
        "--output": "cli/test_demo.py::test_the_example_cluster_settles",
        "--console": "console/test_live.py::test_a_demonstration_with_a_console_says_its_address",
    },
    "console": {
        "--listen": CONSOLE_PLACE,
        "--origin": CONSOLE_PLACE,
        "--token-header": CONSOLE_PLACE,
        "--share-identity": CONSOLE + "test_an_identity_is_shared_where_that_is_asked_for",
        "--address-connections": CONSOLE_PLACE,
        "--core": CONSOLE_PLACE,
        "--token-file": CONSOLE_PLACE,
        "--at-least": CONSOLE_PLACE,
        "--context": CONSOLE_CORES,
        "--cores": CONSOLE_CORES,
        "--tls-ca": CONSOLE_TLS,
        "--tls-cert": CONSOLE_TLS,
        "--tls-key": CONSOLE_TLS,
        "--tls-server-name": CONSOLE_TLS,
    },
    "serve": {
        "--config": SERVED,
        "--listen": SERVED,
        "--metrics": SERVED,
        "--health": SERVED,
        "--decision-log": SERVED,
        "--durable": "record/test_full_disk.py::test_d7_durable_decisions_wait_for_space_and_none_is_missing",
        "--trace": SERVED,
        "--state-dir": "record/test_survival.py::test_d10_a_core_that_is_killed_has_what_was_applied_when_it_starts_again",
        "--insecure": "cli/test_identity.py::test_a_wrong_way_to_serve_is_refused",
        "--tls-cert": SECURED,
        "--tls-key": SECURED,
        "--tls-client-ca": SECURED,
        "--tokens": "cli/test_identity.py::test_a_token_over_tls_opens_the_core",
        "--roles": SECURED,
        "--history": NARROWED,
        "--history-retention": NARROWED,
        "--history-minutes-after": NARROWED,
        "--history-ten-minutes-after": NARROWED,
        "--history-sample": NARROWED,
        "--history-size-max": PAST + "test_a_history_that_cannot_be_kept_is_a_bad_option",
        "--follow": FOLLOWED + "test_a_follower_needs_its_role",
        "--follow-tls-ca": FOLLOWED + "test_a_follower_needs_its_role",
        "--follow-tls-cert": FOLLOWED + "test_a_follower_needs_its_role",
        "--follow-tls-key": FOLLOWED + "test_a_follower_needs_its_role",
        "--follower-acknowledges": FOLLOWED
        + "test_a_follower_shows_what_its_leader_decided_and_would_decide_the_same",
        "--follow-token": FOLLOWED + "test_a_follower_needs_its_role",
        "--cores": SPREAD + "test_each_core_has_its_partition_and_one_goes_on_without_the_other",
        "--moved-from": SPREAD
        + "test_a_partition_moves_when_the_table_is_changed_and_all_are_restarted",
        "--group": SPREAD + "test_wrong_groups_and_tables_are_refused",
        "--log": LOGGED,
        "--log-credentials": LOGGED,
        "--log-tls-ca": LOGGED,
        "--console": "console/test_live.py::test_a_core_with_a_console",
    },
    "history queue": {**PERIOD, "--partition": ELSEWHERE},
    "history pod": {
        "--output": PAST + "test_an_evicted_pod_is_known_after_the_restart",
        "--partition": ELSEWHERE,
        "--all": WHOLE,
    },
    "history waits": {**PERIOD, "--queue": NARROWED, "--partition": ELSEWHERE, "--all": WHOLE},
    "history config": {**PERIOD, "--all": WHOLE},
    "history lost-work": {
        **PERIOD,
        "--queue": NARROWED,
        "--policy": NARROWED,
        "--partition": ELSEWHERE,
        "--all": WHOLE,
    },
    "history failovers": PERIOD,
    "config rollback": dict.fromkeys(("--dry-run", "--all", "--ignore"), ROLLED_BACK)
    | {"--output": PAST + "test_a_rollback_applies_an_earlier_text_as_the_next_revision"},
    "log query": dict.fromkeys(
        (
            *("--policy", "--victim", "--for", "--since", "--until"),
            *("--output", "--sort-by", "--no-headers"),
        ),
        QUERIED,
    )
    | dict.fromkeys(
        ("--queue", "--state"), "record/test_log_query.py::test_the_command_lists_them"
    ),
    "replication": {
        "--output": FOLLOWED + "test_what_a_core_says_of_itself_is_data_too",
        "--to": FOLLOWED + "test_a_core_hands_over_to_a_follower_and_back",
    },
    "partition move": {
        "--output": MOVED,
        "--to": MOVED,
        "--print-table": MOVED,
    },
    "follow": {
        "--for": FOLLOWED
        + "test_a_follower_shows_what_its_leader_decided_and_would_decide_the_same",
        "--output": FOLLOWED
        + "test_a_follower_shows_what_its_leader_decided_and_would_decide_the_same",
    },
    "shim": {
        "--cluster": "cli/test_shim_ends.py::test_a_shim_whose_partition_belongs_to_another_ends_and_says_whose",
        "--kubernetes": SHIM_PLACE,
        "--kubeconfig": SHIM_PLACE,
        "--context": SHIM_PLACE,
        "--namespace": SHIM_PLACE,
        "--instance": SHIM_PLACE,
        "--health": SHIM_PLACE,
        "--metrics": SHIM_PLACE,
        "--qps": SHIM_PLACE,
        "--burst": SHIM_PLACE,
        "--core": SHIM_PLACE,
        "--cores": SPREAD + "test_a_shim_takes_a_table_or_addresses",
        "--tls-ca": SHIM_PLACE,
        "--tls-cert": SHIM_PLACE,
        "--tls-key": SHIM_PLACE,
        "--token-file": SHIM_PLACE,
        "--no-wait": "cli/test_shim_ends.py::test_a_shim_that_is_not_to_wait_ends_as_every_command_does",
        "--state": "cli/test_embedded_restart.py::test_a_shim_that_is_killed_goes_on_where_it_was",
        "--cluster-listen": "cli/test_cluster.py::test_a_shim_listens_on_the_loopback_only",
        "--elect": LEASE,
        "--lease": LEASE,
        "--lease-namespace": LEASE,
        "--lease-duration": LEASE,
        "--lease-renew": LEASE,
        "--lease-margin": LEASE,
        "--forget": "cli/test_embedded_restart.py::test_a_shim_may_have_the_core_forget_what_it_knows",
        "--fresh": "cli/test_embedded_restart.py::test_fresh_begins_with_the_manifests_again",
        "--stop": "cli/test_shim_options.py::test_a_kubernetes_cluster_ends_its_pods_itself",
    },
    "cluster apply": {
        "--output": OF_CLUSTER + "test_applied_objects_are_created_changed_and_left_alone",
        "--address": OF_CLUSTER + "test_a_cluster_that_is_not_there_and_an_address_elsewhere",
    },
    "cluster delete": {
        "--file": OF_CLUSTER + "test_objects_are_deleted_by_name_and_by_file",
        "--namespace": OF_CLUSTER + "test_objects_are_deleted_by_name_and_by_file",
        "--output": OF_CLUSTER + "test_results_of_a_deletion_are_data_too",
        "--address": OF_CLUSTER + "test_a_cluster_that_is_not_there_and_an_address_elsewhere",
    },
    "cluster cordon": {
        "--address": OF_CLUSTER + "test_a_cluster_that_is_not_there_and_an_address_elsewhere",
    },
    "cluster uncordon": {
        "--address": OF_CLUSTER + "test_a_cluster_that_is_not_there_and_an_address_elsewhere",
    },
    "cluster drain": {
        "--force": OF_CLUSTER + "test_a_drain_respects_budgets_and_names_what_it_left",
        "--output": OF_CLUSTER + "test_results_of_a_deletion_are_data_too",
        "--address": OF_CLUSTER + "test_a_cluster_that_is_not_there_and_an_address_elsewhere",
    },
    "cluster scale": {
        "--replicas": OF_CLUSTER + "test_a_workload_is_scaled",
        "--namespace": OF_CLUSTER + "test_a_workload_is_scaled",
        "--address": OF_CLUSTER + "test_a_cluster_that_is_not_there_and_an_address_elsewhere",
    },
    "cluster get": {
        "--namespace": OF_CLUSTER + "test_every_kind_is_listed_and_described_in_80_columns",
        "--sort-by": OF_CLUSTER + "test_every_kind_is_listed_and_described_in_80_columns",
        "--no-headers": OF_CLUSTER + "test_every_kind_is_listed_and_described_in_80_columns",
        "--output": OF_CLUSTER + "test_every_kind_is_listed_and_described_in_80_columns",
        "--address": OF_CLUSTER + "test_a_cluster_that_is_not_there_and_an_address_elsewhere",
    },
    "cluster describe": {
        "--namespace": OF_CLUSTER + "test_every_kind_is_listed_and_described_in_80_columns",
        "--output": OF_CLUSTER + "test_results_of_a_deletion_are_data_too",
        "--address": OF_CLUSTER + "test_a_cluster_that_is_not_there_and_an_address_elsewhere",
    },
    "cluster events": {
        "--namespace": OF_CLUSTER + "test_events_are_listed_by_object_and_type",
        "--warnings": OF_CLUSTER + "test_events_are_listed_by_object_and_type",
        "--count": OF_CLUSTER + "test_events_are_listed_by_object_and_type",
        "--no-headers": OF_CLUSTER + "test_events_are_listed_by_object_and_type",
        "--output": OF_CLUSTER + "test_results_of_a_deletion_are_data_too",
        "--address": OF_CLUSTER + "test_a_cluster_that_is_not_there_and_an_address_elsewhere",
    },
    "story": {
        "--only": "cli/test_story.py::test_only_takes_a_number_a_title_or_a_part_of_one",
        "--explain": "cli/test_story.py::test_full_explanations_are_those_of_explain",
        "--brief": "cli/test_story.py::test_in_brief_each_decision_has_a_line_with_its_rules",
        "--step": "cli/test_story.py::test_step_waits_for_enter_before_the_next_step",
        "--output": "cli/test_story.py::test_the_value_has_everything",
    },
    "replay": {
        "--log": "record/test_replay.py::test_the_same_log_comes_of_it",
        "--compare": "record/test_replay.py::test_the_first_line_that_differs_is_shown_with_what_differs",
        "--until": "record/test_replay.py::test_until_an_instant",
        "--explain": "record/test_replay.py::test_a_key_is_explained_at_the_end",
        "--output": "record/test_replay.py::test_the_summary_counts",
    },
}
"""Options of commands that need more than prepared answers: the test that uses each."""
TIMEOUT = "cli/test_faults.py::test_a_silent_core_is_given_up_after_the_timeout"
"""The one test for an option that acts alike in every command: how long an answer is awaited."""

COMMANDS = dict(leaves(get_command(app)))


def options(path: str) -> dict[str, Any]:
    """Return a command's options by their long names."""
    found = {max(one.opts, key=len): one for one in COMMANDS[path].params}
    return {name: one for name, one in found.items() if name.startswith("--")}


def named_test(path: str, option: str) -> str:
    """Return the test that an option names, "" where it is tried here."""
    if option == "--timeout":
        return TIMEOUT
    return NAMED.get(path, {}).get(option, "")


def values_of(path: str, option: str) -> Row:
    """Return the values that an option is given here; raises KeyError for an option without an entry."""
    rows = TABLE.get(path, {})
    if option not in rows and options(path)[option].rich_help_panel == PANEL:
        return CONNECTION[option]
    return rows[option]


# The test that an option names ----------------------------------------------------------------------------------------


@cache
def definitions(file: str) -> dict[str, ast.AST]:
    """Return the functions and values of a module of tests by their names."""
    found: dict[str, ast.AST] = {}
    for one in ast.parse((TESTS / file).read_text()).body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            found[one.name] = one
        elif isinstance(one, ast.Assign):
            found |= {each.id: one for each in one.targets if isinstance(each, ast.Name)}
    return found


def texts(file: str, name: str) -> set[str]:
    """Return the texts in a test, and in the parts of its module that the test uses."""
    known = definitions(file)
    assert name in known, f"tests/{file} has no {name}"
    waiting, seen, found = [name], {name}, set[str]()
    while waiting:
        for one in ast.walk(known[waiting.pop()]):
            used = (
                one.id if isinstance(one, ast.Name) else one.arg if isinstance(one, ast.arg) else ""
            )
            if used in known and used not in seen:
                seen.add(used)
                waiting.append(used)
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                found.add(one.value)
    return found


# Prepared answers -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder of files for the commands that read one."""
    made = tmp_path_factory.mktemp("files")
    wanted = pod()
    del wanted["metadata"]["namespace"]
    (made / "pod.yaml").write_text(yaml.safe_dump(wanted))
    (made / "classes.yaml").write_text(
        yaml.safe_dump(priority_class("gold", 1000, globalDefault=True))
    )
    (made / "queues.yaml").write_text(QUEUES)
    write(made / "log", decided(1))
    return made


def prepared(*, ends: bool) -> FakeCore:
    """Return a core with an answer to everything; one that `ends` gives each answer once."""
    events = [watch_pb2.EventRecord(number=n, kind="placed", object=f"p{n}") for n in (1, 2)]
    problem = config_pb2.ConfigProblem(
        severity=config_pb2.PROBLEM_SEVERITY_WARNING, message="careful", code=WARNED
    )
    away = inspect_pb2.ManagerInfo(rm_id="rm", away=True, away_since_ms=1)
    simulated = simulate_pb2.PartitionSimulation(
        partition="default",
        decisions=[foreseen(at, f"night/b-{at}", f"shop/web-{at}") for at in range(40)],
    )
    placed = simulate_pb2.AskSimulation(
        allocation_key="train-1", outcome=simulate_pb2.ASK_OUTCOME_PLACED, node_id="node-a"
    )
    waits = samples.why_it_waits("uid-of-train-1")
    waits.lines.append("A sentence that is shown with --all.")
    answers: dict[str, Message] = {
        "ListAllocations": inspect_pb2.ListAllocationsResponse(allocations=PODS),
        "ListNodes": inspect_pb2.ListNodesResponse(nodes=NODES),
        "ListApplications": inspect_pb2.ListApplicationsResponse(applications=APPLICATIONS),
        "ListPartitions": inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()]),
        "GetQueueTree": inspect_pb2.GetQueueTreeResponse(tree=TREE),
        "ListQueueSettings": inspect_pb2.ListQueueSettingsResponse(),
        "ListDecisions": decisions_pb2.ListDecisionsResponse(),
        "ListShadowDecisions": decisions_pb2.ListShadowDecisionsResponse(),
        "GetLostWork": reports_pb2.GetLostWorkResponse(),
        "GetUnmetGuarantees": reports_pb2.GetUnmetGuaranteesResponse(),
        "CheckConsistency": inspect_pb2.CheckConsistencyResponse(checks=["usage"]),
        "ServerInfo": inspect_pb2.ServerInfoResponse(version="1", managers=[away]),
        "Explain": waits,
        "SimulateAsks": simulate_pb2.SimulateAsksResponse(asks=[placed]),
        "SimulateConfiguration": simulate_pb2.SimulateConfigurationResponse(
            valid=True, complete=True, partitions=[simulated], problems=[problem]
        ),
        "Apply": config_pb2.ApplyResponse(applied=True, problems=[problem]),
        "Diff": config_pb2.DiffResponse(revision=7, digest="d" * 64),
        "Get": config_pb2.GetResponse(yaml=QUEUES, revision=7),
        "Check": health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING),
    }
    gone = Failure(grpc.StatusCode.UNAVAILABLE, "gone")
    unary: dict[str, Answer] = {
        name: Turns(one, gone) if ends else one for name, one in answers.items()
    }
    return FakeCore(
        **unary,
        WatchEvents=[watch_pb2.WatchEventsResponse(events=events)],
        WatchDecisions=[decisions_pb2.WatchDecisionsResponse()],
        WatchQueues=[watch_pb2.WatchQueuesResponse(tree=TREE)],
    )


QUEUES = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues: [{name: a, resources: {max: {vcore: 1}}, properties: {quota.preemption.delay: 5m}}]
"""


def outcome(path: str, folder: Path, *given: str, ends: bool = False) -> tuple[object, ...]:
    """Return how a command ends, what it writes and what it asks of the core."""
    contexts = folder / "contexts.yaml"
    contexts.write_text(yaml.safe_dump(CONTEXTS))
    asks = any(one.rich_help_panel == PANEL for one in options(path).values())
    with running(prepared(ends=ends)) as core:
        words = [*path.split(), *(("--core", core.address) if asks else ()), *WORDS.get(path, ())]
        words = [word.replace(FOLDER, str(folder)) for word in (*words, *given)]
        environment = {"EVENHAND_CONFIG": str(contexts)} if path.startswith("context") else {}
        ended = evenhand(*words, width=200, **environment)
        told = [text.replace(core.address, "CORE") for text in (ended.out, ended.err)]
    return ended.code, *told, [str(one) for one in core.requests], contexts.read_text()


EVERY = [(path, option) for path in COMMANDS for option in options(path)]


@pytest.mark.parametrize("path", TABLE)
def test_without_options_a_command_does_the_same_each_time(path: str, folder: Path) -> None:
    first = outcome(path, folder)
    assert first == outcome(path, folder)
    assert first[0] == (1 if path == "health" else 0), first  # A manager is away.


@pytest.mark.parametrize(("path", "option"), EVERY)
def test_an_option_acts_or_is_refused(path: str, option: str, folder: Path) -> None:
    named = named_test(path, option)
    if named:
        file, _, name = named.partition("::")
        assert name.startswith("test_")
        said, spellings = texts(file, name), options(path)[option].opts
        assert any(text.partition("=")[0] in spellings for text in said), f"{named}: no {option}"
        return
    ends = option == "--watch"
    with_it = outcome(path, folder, option, *values_of(path, option), ends=ends)
    assert with_it != outcome(path, folder)


SORTED = [path for path in TABLE if "--sort-by" in options(path)]


@pytest.mark.parametrize("path", SORTED)
def test_the_column_that_help_names_is_one_to_sort_by(path: str, folder: Path) -> None:
    column = re.search(r"such as ([\w-]+)", options(path)["--sort-by"].help)
    assert column, options(path)["--sort-by"].help
    ended = outcome(path, folder, "--sort-by", column[1])
    assert ended[0] == 0, ended


def test_every_entry_is_an_option() -> None:
    entries = {
        (path, option) for table in (TABLE, NAMED) for path, own in table.items() for option in own
    }
    assert entries <= set(EVERY)
    assert not TABLE.keys() & NAMED.keys()


# Combinations ---------------------------------------------------------------------------------------------------------


def combinations() -> Iterator[tuple[str, Row, str]]:
    """Give combinations in which an option would have no effect, and what is said of it."""
    for path in TABLE:
        if "--interval" in options(path):
            yield path, ("--interval", "5"), "--interval has no effect without --watch"
    yield "decisions", ("g-1", "--interval", "5"), "--interval has no effect without --watch"
    yield "decisions", ("--count", "3"), "--count has no effect without --follow"
    yield "decisions", ("--open", "--follow"), "--follow and --open cannot be combined"
    yield "decisions", ("--lost-work", "--watch"), "--lost-work and --watch cannot be combined"
    yield "decisions", ("--shadow", "--policy", "job"), "--shadow and --policy cannot be combined"
    yield "queues", ("--unmet", "--watch"), "--unmet and --watch cannot be combined"
    yield "queues", ("--all",), "--all has no effect without --unmet"
    yield "config apply", ("--all",), "--all has no effect without --dry-run"
    yield "queues", ("--settings", "--waiting"), "--settings and --waiting cannot be combined"
    yield "allocations", ("--waiting", "--foreign"), "--waiting and --foreign cannot be combined"
    state = ("--state", "allocated")
    yield "allocations", (*state, "--foreign"), "--foreign has no effect without --state foreign"
    yield "allocations", (*state, "--asks"), "--asks has no effect without --state waiting"
    yield (
        "health",
        ("--core-only", "--manager", "rm"),
        "--core-only and --manager cannot be combined",
    )
    yield "nodes", ("--tls-server-name", "a"), "--tls-server-name has no effect without --tls-ca"
    yield "nodes", ("--tls-key", "/nowhere/key"), "a certificate needs its key"


@pytest.mark.parametrize(("path", "given", "said"), list(combinations()))
def test_an_option_without_effect_in_a_combination_is_refused(
    path: str, given: Row, said: str, folder: Path
) -> None:
    code, out, err, requests, _ = outcome(path, folder, *given)
    assert (code, out, requests) == (2, "", []), err
    assert isinstance(err, str)
    assert err.startswith(f"error: {said}")


@pytest.mark.parametrize(
    "given",
    [("--waiting", "--asks"), ("--state", "waiting", "--asks"), ("--no-headers", "-o", "json")],
)
def test_an_option_that_the_answer_satisfies_anyway_is_taken(given: Row, folder: Path) -> None:
    assert outcome("allocations", folder, *given)[0] == 0
