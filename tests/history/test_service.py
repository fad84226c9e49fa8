"""The HistoryService: what operators and viewers get of the past, and what it says without a history."""

import base64
from dataclasses import replace
from typing import Any, Final

import grpc
import pytest

from evenhand.v1 import history_pb2 as pb
from evenhand.v1 import history_pb2_grpc
from server.core.core import Core
from server.history import records, sampling
from server.history.address import Address
from server.history.decided import record_of
from server.history.settings import Beginning, Settings
from server.history.tap import Item, Kind
from server.history.writing import Writer
from server.rpc.evenhand import history_service
from server.rpc.evenhand.pages import token_after
from server.rpc.evenhand.redaction import ANOTHER_QUEUE
from server.rpc.identity import Identities, digest
from server.rpc.pod_names import pod_name
from server.rpc.roles import Caller, Role
from tests.history.frames import Told
from tests.history.places import sqlite
from tests.record.preempting import Driver, configuration
from tests.record.values import START
from tests.rpc.harness import SETTING, refusal, serving

KNOWN = Identities(
    open_to_all=False,
    tokens={
        digest("operator"): Caller("ada", Role.OPERATOR),
        digest("viewer"): Caller("vera", Role.VIEWER, "root.high"),
    },
)
ALL: Final[dict[str, Any]] = {"since_ms": 1, "until_ms": START + 10_000_000}
"""A period that has everything."""


def written(place: Address) -> Told:
    """Write a random story of preemption in queues root.high, root.mid and root.low; return who was told."""
    writer = Writer(place, Settings(), pod_name)
    writer.open(START, Beginning("1"), is_start=True)
    ledger = writer._ledger
    assert ledger is not None
    one = Told(Core(configuration(12)), ledger)
    one.tap.note_configuration(START)
    driver = Driver(5, one.tap)
    driver.live(40)
    one.pass_on()
    for at in (ledger._now, ledger._now + 10_000):
        one.give(Item(0, Kind.SAMPLE, at, [sampling.usage(one.core, at)]))
    ledger.settle()
    one.kept = {table.name: list(rows.values()) for table, rows in ledger.pending.items()}
    writer.write(ledger._now)
    assert writer.failing == ""
    writer.close()
    return one


async def asked(place: Address, method: str, request: Any, who: str = "operator") -> Any:
    """Return an answer to a caller."""
    setting = replace(SETTING, identities=KNOWN, history=place)
    async with serving(setting) as served:
        served.clock.ms = START + 10_000_000
        stub = history_pb2_grpc.HistoryServiceStub(served.channel)
        metadata = (("authorization", f"Bearer {who}"),)
        return await getattr(stub, method)(request, metadata=metadata)


async def test_usage_and_waits_of_a_queue(place: Address) -> None:
    one = written(place)
    end = one.ledger._now
    request = pb.GetQueueHistoryRequest(queue="root.low", since_ms=end - 20_000, until_ms=end)
    answer = await asked(place, "GetQueueHistory", request)
    cores = next(each for each in answer.series if each.resource_type == "vcore")
    used = one.core.state.partitions["default"]
    assert cores.average.usage == used.types.named(used.queues["root.low"].usage)["vcore"]
    assert len(cores.points) == 60
    assert answer.waits.asked == answer.waits.placed + answer.waits.waiting + answer.waits.withdrawn


async def test_waits_are_those_of_the_rows(place: Address) -> None:
    one = written(place)
    request = pb.GetWaitsRequest(since_ms=1, until_ms=START + 10_000_000)
    answer = await asked(place, "GetWaits", request)
    rows = [each for each in one.kept["pods"] if not each["brought"]]
    assert answer.total.asked == len(rows)
    waited = sorted(
        each["placed_ms"] - each["asked_ms"] for each in rows if each["placed_ms"] is not None
    )
    assert answer.total.median_ms == waited[-(-len(waited) // 2) - 1]
    assert answer.total.max_ms == waited[-1]
    assert {each.queue for each in answer.queues} == {each["queue"] for each in rows}
    assert answer.total.reasons


async def test_a_viewer_sees_the_past_of_its_own_queue_alone(place: Address) -> None:
    one = written(place)
    period: Any = {"since_ms": 1, "until_ms": START + 10_000_000}
    answer = await asked(place, "GetWaits", pb.GetWaitsRequest(**period), "viewer")
    assert {each.queue for each in answer.queues} == {"root.high"}
    lost = await asked(place, "GetPastLostWork", pb.GetPastLostWorkRequest(**period), "viewer")
    whole = await asked(place, "GetPastLostWork", pb.GetPastLostWorkRequest(**period))
    assert {each.victim for each in whole.lines} - {"root.high"}
    assert {each.victim for each in lost.lines} <= {"root.high", ANOTHER_QUEUE}
    assert not any(each.user or each.application_id for each in lost.owners)
    made = await asked(place, "ListPastDecisions", pb.ListPastDecisionsRequest(**period), "viewer")
    assert made.decisions
    text = str(made)
    assert "root.low" not in text
    assert "root.mid" not in text
    keys = {each["pod_key"] for each in one.kept["pods"] if each["queue"] != "root.high"}
    assert not any(f'"{key}"' in text for key in keys)
    own = next(each for each in one.kept["pods"] if each["queue"] == "root.high")
    pods = await asked(
        place, "GetPodHistory", pb.GetPodHistoryRequest(pod=own["pod_key"]), "viewer"
    )
    assert [each.node_id for each in pods.pods] == [""] * len(pods.pods)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("GetQueueHistory", pb.GetQueueHistoryRequest(queue="root.low")),
        ("GetWaits", pb.GetWaitsRequest(queue="root")),
        ("GetPodHistory", pb.GetPodHistoryRequest(pod="low")),
    ],
)
async def test_a_viewer_is_told_that_others_do_not_exist(
    place: Address, method: str, request_: Any
) -> None:
    one = written(place)
    if method == "GetPodHistory":
        low = next(each for each in one.kept["pods"] if each["queue"] == "root.low")
        request_ = pb.GetPodHistoryRequest(pod=low["pod_key"])
        assert (await asked(place, method, request_)).pods
    code, reason, _ = await refusal(asked(place, method, request_, "viewer"))
    assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")


async def test_a_decision_of_the_past_is_that_of_the_core(place: Address) -> None:
    one = written(place)
    record = next(iter(one.core.state.partitions["default"].decisions.records.values()))
    request = pb.GetPastDecisionRequest(decision_id=record.decision_id)
    answer = await asked(place, "GetPastDecision", request)
    assert answer.decision.policy == record.policy
    assert [each.allocation_key for each in answer.decision.victims] == [
        each.key for each in record.victims
    ]
    assert answer.lines[0] == record.summary


async def test_configurations_have_their_differences(place: Address) -> None:
    written(place)
    request = pb.ListConfigurationsRequest(until_ms=START + 10_000_000)
    answer = await asked(place, "ListConfigurations", request)
    latest, first = answer.configurations
    assert (latest.source, first.changes_unknown) == ("lowered", "the history begins with it")
    changed = [(each.subject, each.before, each.after) for each in latest.changes]
    assert any("root.mid" in subject for subject, _, _ in changed), changed
    assert first.until_ms == latest.at_ms
    assert sum(each.decisions for each in (*latest.effects, *first.effects))
    text = await asked(place, "GetConfiguration", pb.GetConfigurationRequest(revision=1))
    assert "vcore: 12" in text.yaml


async def pages(place: Address, who: str = "operator", **given: Any) -> list[list[str]]:
    """Return the ids of decisions on pages of two."""
    found: list[list[str]] = []
    token = ""
    while token or not found:
        request = pb.ListPastDecisionsRequest(page_size=2, page_token=token, **ALL, **given)
        page = await asked(place, "ListPastDecisions", request, who)
        found.append([each.decision_id for each in page.decisions])
        token = page.next_page_token
    return found


@pytest.mark.parametrize("who", ["operator", "viewer"])
async def test_pages_are_whole(place: Address, who: str) -> None:
    written(place)
    whole = await asked(place, "ListPastDecisions", pb.ListPastDecisionsRequest(**ALL), who)
    ids = [each.decision_id for each in whole.decisions]
    found = await pages(place, who)
    assert [one for page in found for one in page] == ids
    assert len(found) == -(-len(ids) // 2)
    back = await pages(place, who, latest_first=True)
    assert [one for page in back for one in page] == ids[::-1]


async def test_a_later_page_reads_no_more_rows_than_the_first(
    place: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(place)
    monkeypatch.setattr(history_service, "DECISIONS_AT_ONCE", 3)
    counts = []
    for after in range(3):
        read = 0

        def counted(text: str) -> Any:
            nonlocal read
            read += 1
            return record_of(text)

        token = ""
        for number in range(after + 1):
            if number == after:
                monkeypatch.setattr(records, "record_of", counted)
            request = pb.ListPastDecisionsRequest(page_size=2, page_token=token, **ALL)
            token = (await asked(place, "ListPastDecisions", request)).next_page_token
        monkeypatch.setattr(records, "record_of", record_of)
        counts.append(read)
        assert token
    assert counts == [3, 3, 3]


async def test_a_page_of_few_matches_ends_after_a_number_of_rows(
    place: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = written(place)
    monkeypatch.setattr(history_service, "PAGE_MAX", 1)
    queue = one.kept["decisions"][0]["queue"]
    found = await pages(place, queue=queue)
    assert len(found) > 1
    monkeypatch.undo()
    whole = await pages(place, queue=queue)
    assert [each for page in found for each in page] == [each for page in whole for each in page]


@pytest.mark.parametrize(
    "token",
    [
        "7",
        "not base64!",
        token_after((5, "default")),
        token_after(("5", "default", "g-1")),
        token_after((True, "default", "g-1")),
        token_after((-1, "default", "g-1")),
        token_after((2**63, "default", "g-1")),
        token_after((5, "default", "g\0")),
        base64.urlsafe_b64encode(b"5").decode(),
        base64.urlsafe_b64encode(b'[5,"\\ud800","g"]').decode(),
        base64.urlsafe_b64encode(b"[" * 6_000).decode(),
        base64.urlsafe_b64encode(b"\xff").decode(),
    ],
)
async def test_a_token_of_another_kind_is_refused(place: Address, token: str) -> None:
    written(place)
    request = pb.ListPastDecisionsRequest(page_token=token)
    code, reason, _ = await refusal(asked(place, "ListPastDecisions", request))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE")


@pytest.mark.parametrize(
    ("method", "request_", "reason"),
    [
        ("GetWaits", pb.GetWaitsRequest(since_ms=9, until_ms=5), "INVALID_PERIOD"),
        ("GetWaits", pb.GetWaitsRequest(since_ms=-1), "INVALID_PERIOD"),
        ("GetQueueHistory", pb.GetQueueHistoryRequest(points=1_001), "INVALID_POINTS"),
        ("ListFailovers", pb.ListFailoversRequest(page_size=-1), "INVALID_PAGE"),
    ],
)
async def test_bad_requests_are_refused(
    place: Address, method: str, request_: Any, reason: str
) -> None:
    written(place)
    assert (await refusal(asked(place, method, request_)))[1] == reason


async def test_without_a_history_every_call_says_how_to_keep_one() -> None:
    async with serving() as served:
        stub = history_pb2_grpc.HistoryServiceStub(served.channel)
        code, reason, _ = await refusal(stub.GetWaits(pb.GetWaitsRequest()))
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_HISTORY")


async def test_a_history_that_is_not_there_yet_is_no_defect(tmp_path: Any) -> None:
    call = asked(sqlite(tmp_path), "GetWaits", pb.GetWaitsRequest())
    code, reason, _ = await refusal(call)
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "HISTORY_FAILED")
