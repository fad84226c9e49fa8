"""Characters that a terminal obeys: every command shows them as codes, whatever the core sends."""

import json
import re
from typing import Any

import grpc
import pytest
import yaml
from google.protobuf.message import Message
from rich.padding import Padding

from evenhand.v1 import (
    decisions_pb2,
    history_pb2,
    inspect_pb2,
    watch_pb2,
)
from evenhand_cli.demo.picture import picture_console
from evenhand_cli.escaping import acts, escaped, escaped_json
from tests.cli import samples
from tests.cli.decided import claim, quota_run
from tests.cli.fake import Answer, Failure, FakeCore, running
from tests.cli.run import evenhand

HOSTILE = "\x1b[2J\x9b31m\u202e\x07"
ACTING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
SHAPED = {"decision_id", "policy", "law", "code", "partition"}
"""Fields whose words the command line looks up; the others are texts of anybody."""


def poisoned(message: Any) -> Any:
    """Return the message with hostile characters at the end of every name and text in it."""
    for field, value in message.ListFields():
        if field.message_type is None:
            if field.type == field.TYPE_STRING and field.name not in SHAPED:
                _poison(message, field, value)
        elif field.message_type.GetOptions().map_entry:
            for key in list(value) if field.name in {"labels", "tags", "attributes"} else ():
                value[key] += HOSTILE
        else:
            for one in value if field.is_repeated else [value]:
                poisoned(one)
    return message


def _poison(message: Any, field: Any, value: Any) -> None:
    if field.is_repeated:
        texts = [one + HOSTILE for one in value]
        del value[:]
        value.extend(texts)
    else:
        setattr(message, field.name, value + HOSTILE)


def hostile_core() -> FakeCore:
    answers: dict[str, Message] = {
        "ListPartitions": inspect_pb2.ListPartitionsResponse(partitions=[samples.partition()]),
        "GetQueueTree": inspect_pb2.GetQueueTreeResponse(tree=samples.queue_tree()),
        "ListQueueSettings": inspect_pb2.ListQueueSettingsResponse(
            queues=[inspect_pb2.QueueSettings(path="root.a", settings=samples.queue_settings())]
        ),
        "ListApplications": inspect_pb2.ListApplicationsResponse(
            applications=[samples.application()]
        ),
        "ListNodes": inspect_pb2.ListNodesResponse(nodes=[samples.node()]),
        "ListAllocations": inspect_pb2.ListAllocationsResponse(
            allocations=[samples.allocation("pod-1"), samples.waiting_ask("pod-2")]
        ),
        "CheckConsistency": inspect_pb2.CheckConsistencyResponse(findings=[samples.finding()]),
        "Explain": samples.why_it_waits("pod-2"),
        "ListDecisions": decisions_pb2.ListDecisionsResponse(decisions=[claim(), quota_run()]),
        "GetDecision": decisions_pb2.GetDecisionResponse(decision=claim()),
        "ServerInfo": inspect_pb2.ServerInfoResponse(version="1"),
    }
    found: dict[str, Answer] = {name: poisoned(answer) for name, answer in answers.items()}
    found["WatchEvents"] = [
        poisoned(watch_pb2.WatchEventsResponse(events=[samples.event(at) for at in range(2)]))
    ]
    return FakeCore(**found)


COMMANDS = (
    "partitions",
    "queues",
    "queues --settings",
    "apps",
    "nodes",
    "allocations --asks",
    "allocations --asks --summary",
    "events",
    "doctor",
    "explain pod-2",
    "decisions",
    "decisions g-19aa1b2c3d4-17",
    "version",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [80, 200])
def test_nothing_that_acts_reaches_a_terminal(command: str, width: int) -> None:
    with running(hostile_core()) as core:
        ended = evenhand(*command.split(), "--core", core.address, width=width)
    assert not ACTING.search(ended.out + ended.err), ended.out
    if width > 80 and command != "version":
        assert r"\x1b" in ended.out, ended.out


@pytest.mark.parametrize("command", [one for one in COMMANDS if "summary" not in one])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_data_keeps_the_characters_as_codes_of_its_own(command: str, form: str) -> None:
    with running(hostile_core()) as core:
        out = evenhand(*command.split(), "-o", form, "--core", core.address).out
    assert not ACTING.search(out)
    read = list(yaml.safe_load_all(out)) if form == "yaml" else list(_json_values(out))
    if command != "version":
        assert HOSTILE in "".join(_texts(read))


def _json_values(out: str) -> Any:
    decoder, at = json.JSONDecoder(), 0
    while at < len(out.rstrip()):
        value, at = decoder.raw_decode(out, at)
        at += len(out[at:]) - len(out[at:].lstrip())
        yield value


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("command", ["nodes", "apps", "allocations", "events", "partitions"])
def test_names_for_scripts_are_escaped(command: str) -> None:
    with running(hostile_core()) as core:
        ended = evenhand(command, "-o", "name", "--core", core.address)
    assert r"\x1b[2J" in ended.out
    assert not ACTING.search(ended.out)


def test_an_error_of_the_core_is_escaped() -> None:
    failure = Failure(grpc.StatusCode.NOT_FOUND, f"there is no node {HOSTILE}")
    with running(FakeCore(ListNodes=failure)) as core:
        ended = evenhand("nodes", "--core", core.address)
    assert not ACTING.search(ended.err)
    assert r"\x1b[2J" in ended.err


def test_tables_stay_in_line() -> None:
    nodes = [samples.node(), samples.node()]
    nodes[0].node_id, nodes[1].node_id = "a\x1b[2Jb", "plain"
    answer = inspect_pb2.ListNodesResponse(nodes=nodes)
    with running(FakeCore(ListNodes=answer)) as core:
        out = evenhand("nodes", "--core", core.address, width=200).out
    lines = out.splitlines()
    first, second = (next(one for one in lines if name in one) for name in ("[2J", "plain"))
    assert first.startswith(r"a\x1b[2Jb  ")
    assert len(second) - len(second[5:].lstrip()) == first.index(" ") + 2


def test_the_demonstration_escapes_too() -> None:
    console = picture_console()
    console.print("pod \x1b[2J", f"[bold]{HOSTILE}[/bold]")
    assert r"\x1b[2J" in console.export_text()


@pytest.mark.parametrize("text", ["node [lost]", "[/a]", "a:smile:b"])
def test_brackets_and_colons_of_names_are_shown(text: str) -> None:
    console = picture_console()
    console.print(Padding(text, (0, 0, 0, 2)))
    assert text in console.export_text()


def test_the_history_shows_brackets_of_names() -> None:
    ended: dict[str, Any] = {"ended_ms": 3, "end_code": "ended", "end_text": "node [lost]"}
    pods = [history_pb2.PastPod(name="a/b", asked_ms=1, placed_ms=2, node_id="[/n]", **ended)]
    answer = history_pb2.GetPodHistoryResponse(pods=pods)
    with running(FakeCore(GetPodHistory=answer)) as core:
        shown = evenhand("history", "pod", "b", "--core", core.address).out
    assert "ended: node [lost]" in shown
    assert "on [/n]" in shown


def test_escaping() -> None:
    assert escaped("a\tb\nc é 漢") == "a\tb\nc é 漢"
    assert escaped("\x00\x7f\x85\u202e") == r"\x00\x7f\x85\u202e"
    assert not acts("line\nline")
    assert json.loads(escaped_json(json.dumps({"a": HOSTILE}, ensure_ascii=False))) == {
        "a": HOSTILE
    }
