"""Names of 253 characters at 80 columns: shortened in the middle, or whole on a line of their own; never broken."""

import re
from io import StringIO

import pytest
from rich.console import Group, RenderableType
from rich.text import Text

from evenhand.v1 import (
    config_pb2,
    decisions_pb2,
    explain_pb2,
    history_pb2,
    inspect_pb2,
    reports_pb2,
    simulate_pb2,
)
from evenhand_cli.escaping import EscapingConsole
from evenhand_cli.lists import Shape, write_listing
from evenhand_cli.output import Form
from evenhand_cli.render import findings, forecasts, reports
from evenhand_cli.render import history as past
from evenhand_cli.render.columns import Indented
from evenhand_cli.render.fits import Pointer
from evenhand_cli.render.listing import Listing, none_of
from evenhand_cli.terminal import THEME
from tests.cli import decided, samples
from tests.cli.fake import FakeCore, running
from tests.cli.run import evenhand

WIDTH = 80
POD = "lab/" + "pod-name." * 27 + "last-pod-1"
QUEUE = "root." + "team-name." * 24 + "lastqueue"
NODE = "node-name." * 24 + "last-node-99"
FILE = "queues-of-a-long-directory-" * 5 + "queues.yaml"
APP = "app-name." * 27 + "last-app-9"
NAMES = (POD, QUEUE, NODE, APP)
NOTE = "long names are shortened; --output wide shows them whole"
COMMAND = re.compile(r"evenhand explain \S+( --application)?")


def waiting() -> explain_pb2.ExplainResponse:
    answer = samples.why_it_waits(POD)
    answer.lines[:] = [f"It waits because queue {QUEUE} has no headroom and {NODE} is full."]
    ask = answer.waiting
    ask.queue, ask.application_id, ask.nearest_node = QUEUE, APP, NODE
    ask.next_steps[:] = [f"raise the max of queue {QUEUE} by 1 core"]
    for level in ask.levels:
        level.queue = QUEUE
    ask.preemption.CopyFrom(decided.verdict())
    ask.preemption.node_id = NODE
    return answer


def placed() -> explain_pb2.ExplainResponse:
    found = explain_pb2.PlacedAllocation(
        node_id=NODE, queue=QUEUE, application_id=APP, decision_id="G-1", released_for=POD
    )
    line = f"It runs on node {NODE}."
    return explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_ALLOCATION,
        key=POD,
        partition="default",
        lines=[line],
        placed=found,
    )


def evicted() -> explain_pb2.ExplainResponse:
    found = decision()
    return explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_DECISION,
        key=found.decision_id,
        lines=[f"It was evicted from queue {QUEUE}."],
        decision=found,
        evicted=found.victims[0],
    )


def application() -> explain_pb2.ExplainResponse:
    found = explain_pb2.ExplainedApplication(queue=QUEUE, state="running", asks_waiting=1)
    found.groups.add(asks=1, code="no-node", example_name=POD)
    return explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_APPLICATION, key=APP, application=found
    )


def queue() -> explain_pb2.ExplainResponse:
    answer = samples.explained_queue()
    answer.key = answer.queue.queue.path = QUEUE
    answer.lines[:] = [f"Queue {QUEUE} is below its guarantee."]
    return answer


def decision() -> decisions_pb2.Decision:
    found = decided.claim()
    found.summary = f"{POD} of {QUEUE} gets the capacity of 2 pods on {NODE}."
    found.beneficiaries[0].name, found.beneficiaries[0].queue = POD, QUEUE
    for one in found.victims:
        one.name, one.queue, one.node_id, one.application_id = POD, QUEUE, NODE, APP
    for spared in found.spared:
        spared.queue = QUEUE
        spared.examples[:] = [POD]
    for level in found.levels:
        level.queue = QUEUE
    found.why_these.append(f"{POD} was number 1 of 9 candidates; the next one is {POD}.")
    return found


EXPLAINED = {
    "waiting": waiting(),
    "placed": placed(),
    "evicted": evicted(),
    "application": application(),
    "queue": queue(),
}


def check(out: str) -> None:
    """Assert that each line fits, or is one command with a whole name, and that no name is broken."""
    for line in out.splitlines():
        assert len(line) <= WIDTH or COMMAND.fullmatch(line), line
    for piece in ("pod-name", "team-name", "node-name", "app-name"):
        for found in re.findall(rf"\S*{piece}\S*", out):
            assert "…" in found or any(name in found for name in NAMES), out


@pytest.mark.parametrize("more", [(), ("--all",)], ids=["brief", "all"])
@pytest.mark.parametrize("subject", EXPLAINED)
def test_an_explanation_with_long_names_fits_80_columns(
    subject: str, more: tuple[str, ...]
) -> None:
    answer = EXPLAINED[subject]
    with running(FakeCore(Explain=answer)) as core:
        ended = evenhand("explain", answer.key, *more, "--core", core.address, width=WIDTH)
        wide = evenhand("explain", answer.key, "--core", core.address, "-o", "wide")
    check(ended.out)
    notes = ended.out.count("long names are shortened")
    assert notes == 1 or (more and notes)  # With --all each table has its own note.
    assert "…" not in wide.out
    assert "shortened" not in wide.out
    assert answer.key in wide.out


def test_the_answer_stands_before_the_facts_when_names_are_long() -> None:
    with running(FakeCore(Explain=waiting())) as core:
        ended = evenhand("explain", POD, "--core", core.address, width=WIDTH)
    lines = ended.out.splitlines()
    assert lines[0].startswith("lab/pod-name.")
    assert lines[0].endswith("last-pod-1")
    assert lines[2].startswith("  It waits because queue")
    assert "do: raise the max of queue" in ended.out


def test_a_command_with_a_long_name_can_be_copied() -> None:
    found = decision()
    with running(FakeCore(Explain=evicted(), GetDecision=_answer(found))) as core:
        shown = evenhand("decisions", found.decision_id, "--core", core.address, width=WIDTH)
        told = evenhand("explain", POD, "--core", core.address, width=WIDTH)
    for ended in (shown, told):
        check(ended.out)
        assert f"evenhand explain {QUEUE}" in ended.out.splitlines()
        assert len(ended.out.splitlines()) <= 30


def test_pods_of_a_workload_with_long_names_fit_80_columns() -> None:
    pods = [samples.allocation(f"uid-{number}") for number in range(2)]
    for number, one in enumerate(pods):
        one.name, one.node_id, one.queue, one.application_id = f"{POD}{number}", NODE, QUEUE, APP
        one.job_key = APP
        one.state = inspect_pb2.ALLOCATION_STATE_ALLOCATED
    member = placed()
    member.gang_member = "uid-0"
    listed = inspect_pb2.ListAllocationsResponse(allocations=pods)
    with running(FakeCore(Explain=member, ListAllocations=listed)) as core:
        ended = evenhand("explain", APP, "--core", core.address, width=WIDTH)
    check(ended.out)
    for command in (f"evenhand explain {POD}0", f"evenhand explain {APP} --application"):
        assert command in ended.out.splitlines()


def test_a_simulation_with_long_names_fits_80_columns() -> None:
    found = simulate_pb2.AskSimulation(
        allocation_key=POD, queue=QUEUE, outcome=simulate_pb2.ASK_OUTCOME_WAITS
    )
    found.lines.append(f"{POD} waits: {QUEUE} has no headroom.")
    found.verdict.CopyFrom(decided.verdict())
    found.verdict.node_id = NODE
    answer = simulate_pb2.SimulateAsksResponse(asks=[found])
    given = "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: main}]}\n"
    with running(FakeCore(SimulateAsks=answer)) as core:
        ended = evenhand("simulate", "ask", "-", "--core", core.address, given=given, width=WIDTH)
    check(ended.out)
    assert NOTE in " ".join(ended.out.split())


def test_a_listing_without_rows_says_that_a_name_is_shortened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    none = none_of("application", queue=QUEUE)
    listing: Listing[str] = Listing("applications", (), (), str, str, none=none)
    write_listing(listing, Shape(Form.TABLE))
    out = capsys.readouterr().out
    check(out)
    assert out.splitlines()[-1] == NOTE


def test_commands_of_all_reports_can_be_copied() -> None:
    asks = reports_pb2.UnmetAsks(leaf="root.a", name=POD, count=1, binding="max", searched=True)
    lacking = reports_pb2.UnmetQueue(queue="root.a", asks=[asks])
    life = history_pb2.GetPodHistoryResponse(pods=[history_pb2.PastPod(name=POD)])
    evicting = simulate_pb2.ForeseenDecision(decision=decision())
    part = simulate_pb2.PartitionSimulation(decisions=[evicting])
    changed = simulate_pb2.SimulateConfigurationResponse(valid=True, partitions=[part])
    unmet = reports_pb2.GetUnmetGuaranteesResponse(queues=[lacking])
    for shown in (
        reports.unmet(unmet, WIDTH),
        past.pods(POD, life),
        Group(*forecasts.next_steps(changed, "a.yaml")),
    ):
        assert f"evenhand explain {POD}" in printed(shown).splitlines()
    warning = config_pb2.ConfigProblem(code="delay-unused")
    of_queue = history_pb2.GetQueueHistoryResponse(queue=QUEUE)
    waited = history_pb2.GetWaitsResponse(queues=[history_pb2.WaitSummary(queue=QUEUE)])
    commands = [
        (past.queue(of_queue, WIDTH), f"evenhand history waits --queue {QUEUE}"),
        (past.waits(waited, WIDTH), f"evenhand history queue {QUEUE}"),
        (Group(*findings.warned([warning], FILE)), f"evenhand config check {FILE}"),
    ]
    for shown, command in commands:
        assert command in printed(shown).splitlines()


def test_an_indented_command_can_be_copied() -> None:
    lines = printed(Indented(Pointer("for this pod", f"evenhand explain {POD}"), 4)).splitlines()
    assert lines == ["    for this pod:", f"    evenhand explain {POD}"]


@pytest.mark.parametrize("length", range(WIDTH - 6, WIDTH + 2))
def test_an_indented_name_is_shortened_when_its_line_is_too_short(length: int) -> None:
    name = "".join(chr(ord("a") + at % 26) for at in range(length))
    first = printed(Text(f"    {name} is full")).splitlines()[0]
    whole = f"    {name}"
    assert first.rstrip() == whole if len(whole) <= WIDTH else "…" in first
    assert len(first) <= WIDTH
    assert not first.strip().startswith("is")


def test_a_line_that_has_no_name_is_not_said_to_be_shortened() -> None:
    console = EscapingConsole(file=StringIO(), width=WIDTH, theme=THEME)
    console.print(Text("─" * (WIDTH + 1)))
    assert not console.lacks_note


def printed(shown: RenderableType) -> str:
    """Return what a terminal of 80 columns shows."""
    file = StringIO()
    EscapingConsole(file=file, width=WIDTH, theme=THEME).print(shown, crop=False)
    return file.getvalue()


def _answer(found: decisions_pb2.Decision) -> decisions_pb2.GetDecisionResponse:
    return decisions_pb2.GetDecisionResponse(decision=found)
