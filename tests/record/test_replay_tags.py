"""A replay repeats changed tags: a raised quota and a raised guarantee lead to the same placements and the same decision."""

from pathlib import Path

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Decision, Placed
from server.model.events import (
    ApplicationAdded,
    ApplicationRetagged,
    AskAdded,
    Event,
    ManagerRegistered,
    NodeAdded,
)
from server.record.recording import Recording
from server.record.start import Start, begin
from tests.cli.run import evenhand
from tests.ticks import ticked

START = 1_700_000_000_000
QUOTA, GUARANTEE = "namespace.resourcequota", "namespace.resourceguaranteed"


def asks(application: str, count: int) -> list[Event]:
    spec = AskSpec((("memory", 2),))
    return [AskAdded("rm", f"{application}{n}", application, spec) for n in range(count)]


def moments() -> list[tuple[int, list[Event]]]:
    """Return the events of a run by time in milliseconds."""
    begun: list[Event] = [ManagerRegistered("rm"), NodeAdded("rm", "n", (("memory", 10),))]
    other = ApplicationAdded("rm", "y", "root.other", tags={QUOTA: '{"memory":8}'})
    raised = ApplicationRetagged("rm", "y", {QUOTA: '{"memory":10}'})
    refused = ApplicationRetagged("rm", "y", {QUOTA: "many"})
    claims = ApplicationRetagged("rm", "x", {GUARANTEE: '{"memory":4}'})
    return [
        (START, [*begun, other, *asks("y", 5)]),
        (START + 1_000, [raised, refused]),
        (START + 2_000, [ApplicationAdded("rm", "x", "root.shop"), *asks("x", 1)]),
        (START + 60_000, [claims]),
        (START + 90_000, []),
    ]


def record(folder: Path) -> list[Decision]:
    """Record the run and return its decisions."""
    core, made = Core(), list[Decision]()
    recording = Recording(core, lambda: core.state.revision)
    begin(recording, Start(START, "1.2.3", None), folder / "log", folder / "trace")
    for now, events in moments():
        made += recording.take(events, now)
        more = True
        while more:
            tick = ticked(recording, now, 50)
            made, more = [*made, *tick.decisions], tick.more
    recording.close()
    return made


def test_a_replay_repeats_the_effects_of_changed_tags(tmp_path: Path) -> None:
    made = record(tmp_path)
    assert [one.key for one in made if isinstance(one, Placed)] == ["y0", "y1", "y2", "y3", "y4"]
    ended = evenhand(
        "replay", str(tmp_path / "trace"), "--compare", str(tmp_path / "log"), "-o", "json"
    )
    assert ended.code == 0, ended
    value = ended.value()
    assert value["same"] is True
    assert value["events"]["application-retagged"] == 3
    assert value["preemption"] == {"guaranteed": 1}
    assert value["decisions"] == len(made)
