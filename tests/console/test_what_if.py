"""What-if: the answers as pure functions, and the forms, the apply after an answer, and hostile texts over HTTP."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape

import grpc
import pytest
from starlette.testclient import TestClient

from evenhand.v1 import config_pb2, explain_pb2, simulate_pb2
from evenhand_console import what_if
from tests.cli.fake import Failure, FakeCore
from tests.cli.samples import T0, queue_tree
from tests.console.samples import CONTROLS, HOSTILE, core
from tests.console.serving import console

TEXT = "partitions:\n  - name: default\n    queues: []\n"
DIGEST = "d" * 64


def _field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, name
    return unescape(found[1])


def _core(name: str = "research", *, valid: bool = True) -> FakeCore:
    fake = core(name)
    problem = config_pb2.ConfigProblem(
        severity=config_pb2.PROBLEM_SEVERITY_WARNING
        if valid
        else config_pb2.PROBLEM_SEVERITY_ERROR,
        line=2,
        path=name,
        message=name,
        consequence=name,
    )
    forecast = simulate_pb2.QueueForecast(
        queue=name,
        before=simulate_pb2.QueueNumbers(held={"vcore": 2000}, max={"vcore": 4000}),
        applied=simulate_pb2.QueueNumbers(held={"vcore": 2000}, max={"vcore": 1000}),
        after=simulate_pb2.QueueNumbers(held={"vcore": 1000}),
    )
    partition = simulate_pb2.PartitionSimulation(partition=name, forecasts=[forecast])
    fake.answers |= {
        "Get": config_pb2.GetResponse(
            yaml=TEXT, source=name, digest=DIGEST, revision=7, applied_by=name, applied_at_ms=T0
        ),
        "Diff": config_pb2.DiffResponse(
            changes=[config_pb2.ConfigChange(kind="changed", subject=name, before=name)],
            revision=7,
            digest=DIGEST,
        ),
        "SimulateConfiguration": simulate_pb2.SimulateConfigurationResponse(
            valid=valid, problems=[problem], partitions=[partition], complete=True
        ),
        "Apply": config_pb2.ApplyResponse(applied=True, revision=8, revision_before=7),
        "SimulateAsks": simulate_pb2.SimulateAsksResponse(
            asks=[
                simulate_pb2.AskSimulation(
                    allocation_key=name,
                    outcome=simulate_pb2.ASK_OUTCOME_WAITS,
                    queue=f"root.{name}",
                    lines=[name],
                )
            ],
            groups=[
                simulate_pb2.SimulatedGroup(fit=explain_pb2.GroupFit(name=name), next_steps=[name])
            ],
        ),
    }
    return fake


@contextmanager
def _opened(fake: FakeCore) -> Iterator[tuple[TestClient, dict[str, str]]]:
    """Open the page, and return the fields of its form about the configuration."""
    with console(fake) as client:
        page = client.get("/what-if").text
        names = ("mark", "base_revision", "base_digest", "origin")
        yield client, {name: _field(page, name) for name in names} | {"yaml": TEXT}


def _applied(fake: FakeCore) -> list[config_pb2.ApplyRequest]:
    return [one for one in fake.requests if isinstance(one, config_pb2.ApplyRequest)]


def test_a_configuration_is_applied_after_its_answer_with_its_base() -> None:
    fake = _core()
    with _opened(fake) as (client, fields):
        answer = client.post("/what-if/configuration", data=fields).text
        assert "4 → <strong>1" in answer
        assert not _applied(fake)
        done = client.post("/what-if/apply", data=fields | {"tried": _field(answer, "tried")})
    assert "Revision 8 is in force" in done.text
    (sent,) = _applied(fake)
    assert (sent.base_revision, sent.base_digest, sent.yaml) == (7, DIGEST, TEXT)
    assert not sent.dry_run


@pytest.mark.parametrize("changed", ["tried", "yaml", "base_digest", "mark"])
def test_nothing_else_than_the_tried_text_is_applied(changed: str) -> None:
    fake = _core()
    with _opened(fake) as (client, fields):
        answer = client.post("/what-if/configuration", data=fields).text
        given = fields | {"tried": _field(answer, "tried")}
        refused = client.post("/what-if/apply", data=given | {changed: "other"})
    assert refused.status_code in {403, 409}
    assert not _applied(fake)


def test_the_line_ends_of_a_form_do_not_change_the_text() -> None:
    fake = _core()
    with _opened(fake) as (client, fields):
        sent = fields | {"yaml": TEXT.replace("\n", "\r\n")}
        answer = client.post("/what-if/configuration", data=sent).text
        client.post("/what-if/apply", data=sent | {"tried": _field(answer, "tried")})
    assert [one.yaml for one in _applied(fake)] == [TEXT]


def test_an_error_is_shown_at_its_line_and_cannot_be_applied() -> None:
    with _opened(_core(valid=False)) as (client, fields):
        answer = client.post("/what-if/configuration", data=fields).text
    assert "It cannot be applied" in answer
    assert re.search(r'<li value="2"><mark>.*- name: default</mark>', answer)
    assert 'name="tried"' not in answer


def test_a_text_of_an_older_revision_cannot_be_applied() -> None:
    fake = _core()
    with _opened(fake) as (client, fields):
        fake.answers["Diff"] = config_pb2.DiffResponse(revision=8, digest="e" * 64)
        answer = client.post("/what-if/configuration", data=fields).text
    assert "Revision 8 is in force" in answer
    assert 'name="tried"' not in answer


def test_a_core_that_has_another_revision_by_then_refuses() -> None:
    fake = _core()
    fake.answers["Apply"] = Failure(grpc.StatusCode.ABORTED, "revision 9 is in force")
    with _opened(fake) as (client, fields):
        answer = client.post("/what-if/configuration", data=fields).text
        refused = client.post("/what-if/apply", data=fields | {"tried": _field(answer, "tried")})
    assert refused.status_code == 409
    assert "revision 9 is in force" in refused.text


def test_a_pod_is_simulated_beside_its_queue_and_a_bad_text_keeps_the_form() -> None:
    fake = _core()
    with _opened(fake) as (client, fields):
        good = {
            "mark": fields["mark"],
            "text": "asks: [{queue: root.research, resources: {vcore: 1}}]",
        }
        answer = client.post("/what-if/pods", data=good).text
        bad = client.post("/what-if/pods", data=good | {"text": "asks: [\n  {"})
        priority = client.post("/what-if/pods", data=good | {"priority": "high"})
    assert "<strong>waits</strong>" in answer
    assert "Present state" in answer
    assert (bad.status_code, priority.status_code) == (409, 409)
    assert "text:" in bad.text
    assert "asks: [\n  {</textarea>" in bad.text
    assert "is no whole number" in priority.text


@pytest.mark.parametrize("name", HOSTILE, ids=["markup", "controls", "long"])
def test_names_are_text_in_answers(name: str) -> None:
    with _opened(_core(name)) as (client, fields):
        pages = [
            client.get("/what-if"),
            client.post("/what-if/configuration", data=fields),
            client.post(
                "/what-if/pods",
                data={
                    "mark": fields["mark"],
                    "text": "asks: [{queue: root.a, resources: {vcore: 1}}]",
                },
            ),
        ]
    for page in pages:
        assert page.status_code == 200, page.text
        assert not re.search(r"<(script|img)\b", page.text.partition("<main>")[2])
        assert "\x1b" not in page.text


def test_a_text_with_control_characters_is_not_edited_in_a_page() -> None:
    fake = _core()
    fake.answers["Get"] = config_pb2.GetResponse(yaml=f"# {CONTROLS}\n", revision=1)
    with console(fake) as client:
        page = client.get("/what-if").text
    assert "cannot be edited here" in page
    assert 'id="yaml"' not in page


def test_a_viewer_simulates_pods_without_the_configuration() -> None:
    fake = _core()
    fake.answers["Get"] = Failure(grpc.StatusCode.PERMISSION_DENIED, "no")
    with console(fake) as client:
        page = client.get("/what-if").text
    assert "Your role may not see the configuration" in page
    assert 'action="/what-if/pods"' in page


def test_only_queues_that_change_have_a_row() -> None:
    same = simulate_pb2.QueueNumbers(held={"vcore": 1}, allocations=1)
    found = simulate_pb2.SimulateConfigurationResponse(
        valid=True,
        complete=True,
        partitions=[
            simulate_pb2.PartitionSimulation(
                forecasts=[
                    simulate_pb2.QueueForecast(queue="a", before=same, applied=same, after=same),
                    simulate_pb2.QueueForecast(queue="b", before=same),
                    simulate_pb2.QueueForecast(
                        queue="c",
                        applied=simulate_pb2.QueueNumbers(guaranteed={"vcore": 5}),
                    ),
                ]
            )
        ],
    )
    answer = what_if.shown_configuration(TEXT, config_pb2.DiffResponse(), found)
    rows = answer.partitions[0].forecasts
    assert [(one.queue, one.fate) for one in rows] == [("b", "removed"), ("c", "new")]
    assert rows[1].guaranteed == (None, 5)


def test_the_queues_of_simulated_pods_have_their_present_numbers() -> None:
    asks = [simulate_pb2.AskSimulation(queue="root.research")]
    answer = what_if.shown_pods(
        simulate_pb2.SimulateAsksResponse(asks=asks), queue_tree(), [["note"]], [[]], {"Service": 2}
    )
    assert [one.path for one in answer.queues] == ["root.research"]
    assert answer.pods[0].notes == ("note",)
    assert answer.ignored == (("Service", 2),)
