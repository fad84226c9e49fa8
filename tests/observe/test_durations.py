"""The histograms by queue: waits by reason, time to preempt, unmet guarantees, lost work, and their limits."""

import random
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.core.core import Core
from server.model.asks import ReleaseMark
from server.model.decisions import Decision, Decisions, Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    Event,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.model.quota import Configuration, PartitionSpec, QueueProperties
from server.model.resources import resource
from server.observe import durations, histograms
from server.observe.histograms import BOUNDS_MS, Histogram
from server.observe.metrics import ALONE, Around, Metrics
from server.state.partition import Partition
from server.state.queues import Queue
from tests.effort import cases
from tests.observe.test_metrics import LEAF, NOW, ROOT, ask

S = 1_000


class Timed:
    """A core with metrics and a clock. Queue `root.a` has no guarantee, `root.b` guarantees 2,000 millicores."""

    def __init__(self, around: Around = ALONE) -> None:
        self.core, self.now = Core(), NOW
        self.metrics = Metrics(self.core, around)
        guaranteed = replace(
            LEAF, name="b", max=None, properties=QueueProperties(preemption_delay_ms=5 * S)
        )
        root = replace(ROOT, children=(replace(LEAF, guaranteed=(), max=None), guaranteed))
        self.take(
            ConfigurationApplied(Configuration((PartitionSpec("default", root),)), "test"),
            ManagerRegistered("rm"),
            NodeAdded("rm", "n1", resource({"vcore": 4_000}), schedulable=True),
            ApplicationAdded("rm", "low", "root.a"),
            ApplicationAdded("rm", "high", "root.b"),
        )

    def take(self, *events: Event, after_s: float = 0) -> list[Decision]:
        self.now += int(after_s * S)
        decisions = [one for event in events for one in self.core.handle(event, self.now)]
        decisions += self.core.tick(self.now).decisions
        self.metrics.decided(Decisions(decisions), self.now)
        self.metrics.sliced(len(events), 0.002, self.now)
        return decisions

    def found(self, name: str) -> dict[tuple[str, ...], tuple[int, float]]:
        """Return count and sum of each line of a histogram, by the values of its labels except the partition."""
        counts: dict[tuple[str, ...], float] = {}
        sums: dict[tuple[str, ...], float] = {}
        for family in text_string_to_metric_families(self.metrics.text().decode()):
            for one in family.samples:
                labels = tuple(value for key, value in one.labels.items() if key != "partition")
                if one.name == f"{name}_count":
                    counts[labels] = one.value
                if one.name == f"{name}_sum":
                    sums[labels] = one.value
        return {labels: (int(count), sums[labels]) for labels, count in counts.items()}

    def value(self, name: str, **labels: str) -> float | None:
        return next(
            (
                one.value
                for family in text_string_to_metric_families(self.metrics.text().decode())
                for one in family.samples
                if one.name == name and labels.items() <= one.labels.items()
            ),
            None,
        )


def created(key: str, vcore: int, at: int, application: str = "low") -> AskAdded:
    return ask(key, vcore, application)._replace(created_ms=at)


def test_a_wait_counts_from_creation_by_the_last_reported_reason() -> None:
    timed = Timed()
    timed.take(created("one", 4_000, NOW - 2 * S), created("two", 3_000, NOW))
    assert timed.found("evenhand_wait_seconds") == {("root.a", "none"): (1, 2.0)}
    timed.take(ReleaseRequested("rm", "low", "one"), after_s=20)
    assert timed.found("evenhand_wait_seconds") == {
        ("root.a", "none"): (1, 2.0),
        ("root.a", "no-node"): (1, 20.0),
    }


def test_placements_are_counted_when_the_core_is_idle_or_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durations, "COLLECTED_MAX", 3)
    timed = Timed()
    waits = durations.Waits(timed.core)
    for name in ("a1", "a2"):
        waits.decided(Decisions(timed.take(created(name, 10, NOW))), NOW)
    assert len(waits.histogram) == 0
    waits.decided(Decisions(timed.take(created("a3", 10, NOW))), NOW)
    assert len(waits.histogram) == 1


def test_the_codes_of_asks_that_ended_without_a_node_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durations, "CODES_MIN", 5)
    timed = Timed()
    timed.take(created("one", 4_000, NOW))
    for number in range(20):
        timed.take(created(f"w{number}", 1_000 + number, NOW))
        timed.take(ReleaseRequested("rm", "low", f"w{number}"))
    assert len(timed.metrics._durations._waits._codes) <= 6


def test_a_claim_shows_its_preemption_the_unmet_guarantee_and_the_lost_work() -> None:
    timed = Timed()
    timed.take(created("a1", 4_000, NOW))
    timed.take(created("b1", 2_000, NOW + 30 * S, "high"), after_s=30)
    labels = {"partition": "default", "queue": "root.b"}
    since = timed.value("evenhand_guarantee_unmet_since_timestamp_seconds", **labels)
    assert since == (NOW + 30 * S) / S
    timed.take(after_s=10)
    timed.take(ReleaseRequested("rm", "low", "a1"), after_s=7)
    assert timed.value("evenhand_guarantee_unmet_since_timestamp_seconds") is None
    assert timed.found("evenhand_guarantee_unmet_seconds") == {("root.b",): (1, 17.0)}
    assert timed.found("evenhand_preemption_seconds") == {("root.b", "guaranteed"): (1, 7.0)}
    assert timed.found("evenhand_lost_work_seconds") == {("root.a", "guaranteed"): (1, 40.0)}
    assert timed.found("evenhand_wait_seconds")["root.b", "no-node"] == (1, 17.0)


def test_a_quota_run_that_is_known_from_marks_alone_counts_its_lost_work() -> None:
    """A core without a state learns from the mark of a victim of the run, and does not know since when or for which queue."""
    timed = Timed()
    mark = ReleaseMark(Termination.PREEMPTED_BY_SCHEDULER, "q-1-1", "", "")
    spec = created("a1", 4_000, NOW).spec
    timed.take(AllocationAdded("rm", "a1", "low", "n1", spec, created_ms=NOW, releasing=mark))
    assert timed.value("evenhand_open_decisions", policy="quota") == 1
    timed.take(ReleaseRequested("rm", "low", "a1"), after_s=7)
    assert timed.value("evenhand_open_decisions", policy="quota") is None
    assert timed.found("evenhand_preemption_seconds") == {}
    assert set(timed.found("evenhand_lost_work_seconds")) == {("root.a", "quota")}


def test_a_decision_without_effect_took_no_time_and_lost_no_work() -> None:
    timed = Timed()
    timed.take(created("a1", 4_000, NOW))
    timed.take(created("b1", 2_000, NOW, "high"), after_s=30)
    timed.take(after_s=10)
    assert timed.value("evenhand_open_decisions", policy="guaranteed") == 1
    timed.take(ReleaseRequested("rm", "high", "b1"), after_s=7)
    assert timed.value("evenhand_open_decisions", policy="guaranteed") is None
    assert timed.found("evenhand_preemption_seconds") == {}
    assert timed.found("evenhand_lost_work_seconds") == {}


def test_a_queue_that_uses_its_guarantee_is_not_unmet() -> None:
    timed = Timed()
    timed.take(created("b1", 2_000, NOW, "high"), created("a1", 2_000, NOW))
    timed.take(created("b2", 2_000, NOW, "high"), after_s=1)
    assert timed.value("evenhand_guarantee_unmet_since_timestamp_seconds") is None


def test_an_unmet_guarantee_ends_when_nothing_waits_or_its_queue_is_gone() -> None:
    timed = Timed()
    timed.take(created("a1", 4_000, NOW), created("b1", 1_000, NOW, "high"))
    timed.take(ReleaseRequested("rm", "high", "b1"), after_s=3)
    assert timed.found("evenhand_guarantee_unmet_seconds") == {("root.b",): (1, 3.0)}
    timed.take(created("b2", 1_000, NOW, "high"), after_s=1)
    lone = replace(ROOT, children=(replace(LEAF, guaranteed=(), max=None),))
    applied = Configuration((PartitionSpec("default", lone),))
    timed.take(ReleaseRequested("rm", "high", ""), ConfigurationApplied(applied, "test"), after_s=4)
    assert timed.value("evenhand_guarantee_unmet_since_timestamp_seconds") is None


def test_many_watched_queues_are_checked_after_a_pause_and_before_a_scrape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A core is idle after almost every ask. With many waiting queues, it did little but check their guarantees."""
    checked: list[str] = []
    is_unmet = durations.is_unmet

    def counted(partition: Partition, queue: Queue) -> bool:
        checked.append(queue.path)
        return is_unmet(partition, queue)

    monkeypatch.setattr(durations, "is_unmet", counted)
    monkeypatch.setattr(durations, "IDLE_QUEUES_MAX", 0)
    timed = Timed()
    timed.take(created("a1", 4_000, NOW), created("b1", 1_000, NOW, "high"))
    assert checked == ["root.b"], "a queue in which an ask has begun to wait is checked at once"
    for number in range(3):
        timed.take(created(f"more-{number}", 1_000, NOW, "low"), after_s=0.01)
        timed.metrics.idle()
    assert checked == ["root.b"]
    timed.take(ReleaseRequested("rm", "high", "b1"), after_s=0.05)
    timed.metrics.idle()
    assert checked == ["root.b"]
    found = timed.found("evenhand_guarantee_unmet_seconds")
    assert found == {("root.b",): (1, 0.08)}, "a scrape checks what the pause has left out"
    timed.take(created("b2", 1_000, NOW, "high"))
    timed.take(created("more", 1_000, NOW, "low"), after_s=durations.IDLE_CHECK_MS / S)
    timed.metrics.idle()
    assert checked == ["root.b"] * 3


def test_queues_beyond_the_limit_share_a_line_and_a_metric_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(histograms, "LINES_MAX", 1)
    timed = Timed()
    timed.take(
        created("a1", 10, NOW), created("b1", 10, NOW, "high"), created("b2", 5, NOW, "high")
    )
    found = timed.found("evenhand_wait_seconds")
    assert sorted(found) == [("other", "none"), ("root.a", "none")]
    assert found["other", "none"][0] == 2
    name = {"metric": "evenhand_wait_seconds"}
    assert timed.value("evenhand_metric_lines", **name) == 1
    assert timed.value("evenhand_metric_folded_total", **name) == 2


def test_a_removed_queue_gives_its_line_to_another() -> None:
    one = Histogram("h_seconds", "text", "code")
    one.add(("p", "root.gone", "none"), 1)
    one.add(("p", "root.kept", "none"), 1)
    one.keep({("p", "root.kept")})
    assert (len(one), one.folded) == (1, 1)
    assert 'queue="other"' in one.text()
    assert "root.gone" not in one.text()


def test_labels_are_escaped() -> None:
    one = Histogram("h_seconds", "text")
    hostile = 'a"b\\c\nd'
    one.add(("p", hostile), 1)
    found = list(text_string_to_metric_families(one.text()))
    assert {sample.labels["queue"] for sample in found[0].samples} == {hostile}


@pytest.mark.parametrize("seed", range(cases(50, least=5)))
def test_a_histogram_equals_one_that_counts_each_value_alone(seed: int) -> None:
    chance = random.Random(seed)
    one = Histogram("h_seconds", "text")
    values: list[int] = []
    for _ in range(chance.randrange(1, 40)):
        bound = chance.choice(BOUNDS_MS)
        value, times = max(0, bound + chance.randrange(-1, 2)), chance.randrange(1, 4)
        one.add(("p", "q"), value, times)
        values += [value] * times
        if chance.random() < 0.3:
            one.text()
    family = next(iter(text_string_to_metric_families(one.text())))
    found = {sample.labels.get("le", sample.name): sample.value for sample in family.samples}
    for bound in BOUNDS_MS:
        assert found[repr(bound / 1_000)] == sum(value <= bound for value in values)
    assert found["+Inf"] == found["h_seconds_count"] == len(values)
    assert found["h_seconds_sum"] == sum(values) / 1_000
