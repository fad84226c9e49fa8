"""Metrics of decisions, as a Prometheus server reads them."""

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import (
    BARRIER,
    AskReleased,
    Decision,
    Decisions,
    Released,
    Termination,
    Withdrawn,
)
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    Event,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.model.quota import Acl, Configuration, PartitionSpec, QueueProperties, QueueSpec
from server.model.resources import resource
from server.model.thrashing import FrozenPair, Pair, TemplateInQueue
from server.observe.metrics import Around, Metrics

NOW = 1_700_000_000_000
LEAF = QueueSpec(name="a", guaranteed=resource({"vcore": 2_000}), max=resource({"vcore": 4_000}))
ROOT = QueueSpec(name="root", parent=True, submit_acl=Acl(everyone=True), children=(LEAF,))


def ask(key: str, vcore: int, application: str = "app") -> AskAdded:
    return AskAdded("rm", key, application, AskSpec(resource=resource({"vcore": vcore})))


class Observed:
    """A core whose decisions are counted."""

    def __init__(self) -> None:
        self.core, self.now = Core(), NOW
        self.records = {"decision-log": (4, "", 2), "trace": (0, "no space left on device", 0)}
        self.secrets = (2, {"tls": "", "tokens": "line 1: this is no YAML"}, 1_800_000_000_000)
        around = Around(
            lambda: {("rm", "allocation"): 3},
            records=lambda: self.records,
            secrets=lambda: self.secrets,
            now=lambda: self.now,
        )
        self.metrics = Metrics(self.core, around)

    def take(self, *events: Event) -> None:
        decisions = [one for event in events for one in self.core.handle(event, NOW)]
        decisions += self.core.tick(NOW).decisions
        self.metrics.decided(Decisions(decisions), NOW)
        self.metrics.sliced(len(events), 0.002, NOW)

    def value(self, name: str, **labels: str) -> float | None:
        found = {
            tuple(sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.metrics.text().decode())
            for sample in family.samples
            if sample.name == name
        }
        return found.get(tuple(sorted(labels.items())))


def small() -> Observed:
    observed = Observed()
    observed.take(
        ConfigurationApplied(Configuration((PartitionSpec("default", ROOT),)), "test"),
        ManagerRegistered("rm"),
        NodeAdded("rm", "n1", resource({"vcore": 8_000}), schedulable=True),
        ApplicationAdded("rm", "app", "root.a"),
    )
    return observed


def test_placements_waiting_asks_and_queues() -> None:
    observed = small()
    observed.take(ask("one", 3_000), ask("two", 3_000))
    assert observed.value("evenhand_placements_total", partition="default") == 1
    assert observed.value("evenhand_waiting_asks", partition="default", code="queue-limit") == 1
    where = {"partition": "default", "queue": "root.a", "resource": "vcore"}
    assert observed.value("evenhand_queue_usage", **where) == 3_000
    assert observed.value("evenhand_queue_guaranteed", **where) == 2_000
    assert observed.value("evenhand_queue_max", **where) == 4_000
    assert observed.value("evenhand_stream_depth", manager="rm", stream="allocation") == 3
    assert observed.value("evenhand_tick_seconds_count") == 2


def test_releases_and_refusals() -> None:
    observed = small()
    observed.take(ask("one", 3_000))
    observed.take(ReleaseRequested("rm", "app", "one"), ask("x", 1, "nobody"))
    released = {"partition": "default", "termination": "stopped_by_rm"}
    assert observed.value("evenhand_releases_total", **released) == 1
    assert observed.value("evenhand_rejections_total", kind="ask") == 1


def test_releases_count_by_partition_and_reason() -> None:
    observed = small()
    ends: list[Decision] = [
        Released("rm", "default", "a", "app", Termination.TIMEOUT),
        AskReleased("rm", "default", "b", "app", Termination.TIMEOUT),
        Released("rm", "other", "c", "app", Termination.TIMEOUT),
        Released("rm", "other", "d", "app", Termination.PREEMPTED_BY_SCHEDULER),
    ]
    observed.metrics.decided(Decisions(ends), NOW)
    observed.metrics.decided(Decisions(ends[:2]), NOW)
    expected = {
        ("default", "timeout"): 4,
        ("other", "timeout"): 1,
        ("other", "preempted_by_scheduler"): 1,
    }
    for (partition, why), many in expected.items():
        told = {"partition": partition, "termination": why}
        assert observed.value("evenhand_releases_total", **told) == many


def test_a_victim_that_stays_after_all_counts() -> None:
    observed = small()
    stays = [Withdrawn("rm", "default", key, "g-1-1", "") for key in "ab"]
    observed.metrics.decided(Decisions(stays), NOW)
    assert observed.value("evenhand_withdrawals_total", partition="default") == 2


def test_a_barrier_is_no_refusal() -> None:
    observed = small()
    observed.take(ask("b", 1, BARRIER), ask("x", 1, "nobody"))
    assert observed.value("evenhand_rejections_total", kind="ask") == 1


def test_records_that_cannot_be_written() -> None:
    observed = small()
    assert observed.value("evenhand_record_lost", record="decision-log") == 4
    assert observed.value("evenhand_record_gaps_total", record="decision-log") == 2
    assert observed.value("evenhand_record_failing", record="decision-log") == 0
    assert observed.value("evenhand_record_failing", record="trace") == 1


def test_secrets_that_are_read_again() -> None:
    observed = small()
    assert observed.value("evenhand_secret_reloads_total") == 2
    assert observed.value("evenhand_secret_failing", kind="tls") == 0
    assert observed.value("evenhand_secret_failing", kind="tokens") == 1
    assert observed.value("evenhand_certificate_expires_seconds") == 1_800_000_000


def test_preemption_is_counted_and_a_queue_over_its_maximum_is_seen() -> None:
    observed = small()
    high = replace(LEAF, name="b", max=None, properties=QueueProperties(preemption_delay_ms=1))
    root = replace(ROOT, children=(replace(LEAF, guaranteed=(), max=None), high))
    tight = replace(root, children=(replace(LEAF, guaranteed=(), max=resource({"vcore": 1})), high))
    configured = (Configuration((PartitionSpec("default", one),)) for one in (root, tight))
    observed.take(ConfigurationApplied(next(configured), "test"))
    observed.take(
        ApplicationAdded("rm", "app", "root.a"),
        ApplicationAdded("rm", "other", "root.b"),
        ask("a1", 4_000),
        ask("a2", 4_000),
    )
    observed.take(ConfigurationApplied(next(configured), "test"))
    over = {"partition": "default", "queue": "root.a", "resource": "vcore"}
    assert observed.value("evenhand_queue_over_max", **over) == 7_999
    late = ask("b1", 2_000, "other")._replace(created_ms=NOW - 60_000)
    observed.take(late)
    policy = {"partition": "default", "policy": "guaranteed"}
    assert observed.value("evenhand_decisions_total", **policy) == 1
    assert observed.value("evenhand_victims_total", **policy) == 1
    assert observed.value("evenhand_open_decisions", **policy) == 1
    told = {"partition": "default", "code": "quota-not-enforced"}
    assert observed.value("evenhand_notices_total", **told) == 1


def test_a_pair_counts_as_frozen_until_its_freeze_ends() -> None:
    """No tick has to come in between: a cluster in which nothing happens has none."""
    observed = small()
    pair = Pair(TemplateInQueue("root.a"), TemplateInQueue("root.b"))
    thrashing = observed.core.state.partitions["default"].thrashing
    thrashing.frozen[pair] = FrozenPair(pair, "guaranteed", NOW, NOW + 1_000)
    observed.now = NOW + 999
    assert observed.value("evenhand_frozen_pairs", partition="default") == 1
    observed.now = NOW + 1_000
    assert observed.value("evenhand_frozen_pairs", partition="default") in {0, None}
