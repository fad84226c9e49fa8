"""The metrics of live cores and a live shim together: every metric with the names of its labels."""

from collections.abc import Iterator
from dataclasses import replace
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from server.model.decisions import Decisions, ShadowDecided, Withdrawn
from server.model.events import ConfigurationApplied, ReleaseRequested
from server.model.quota import Configuration, PartitionSpec, PreemptionSettings
from server.model.resources import resource
from server.observe.metrics import Around, Metrics
from server.rpc.level import gauges
from shim_client.metrics import Leading
from shim_client.metrics import served as shim_metrics
from tests.observe.test_durations import Timed, created
from tests.observe.test_metrics import LEAF, NOW, ROOT, ask
from tests.rpc.harness import SETTING, Served, serving
from tests.rpc.test_following import following, level
from tests.rpc.test_shadows import recorded

Exported = dict[str, frozenset[str]]
"""The names of all series with the names of their labels, without ``le``."""

AROUND = Around(
    depths=lambda: {("rm", "allocation"): 3},
    records=lambda: {"decision-log": (4, "", 2)},
    managers=lambda: {"rm": (True, 0)},
    secrets=lambda: (1, {"tls": "no certificate"}, NOW),
    now=lambda: NOW,
)


async def exported() -> Exported:
    """Return what two cores, one of which follows the other, a core with preemption, and a shim export together."""
    found: Exported = {}
    for text in preempting():
        found |= _series(text)
    async with serving(replace(SETTING, acknowledged_s=1.0)) as leader:
        await leader.ready()
        async with following(leader) as follower:
            await level(leader, follower)
            for one in (leader, follower):
                found |= _series(_standing(one))
    return found | _series(_shim())


def _shim() -> str:
    """Return the metrics of a shim with an election."""
    with (
        shim_metrics("127.0.0.1:0", lambda: Leading(7, 3.5)) as port,
        urlopen(f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        return str(answer.read().decode())


def preempting() -> Iterator[str]:
    """Yield the metrics of a core while a decision is open, and after it, with a queue over its max and shares by weight."""
    timed = Timed(AROUND)
    timed.take(created("a1", 4_000, NOW), ask("x", 1, "nobody"))
    timed.take(created("b1", 2_000, NOW, "high"), after_s=30)
    timed.take(after_s=10)
    yield timed.metrics.text().decode()
    timed.take(ReleaseRequested("rm", "low", "a1"), after_s=7)
    timed.take(created("a2", 2_000, NOW), created("b2", 1_000, NOW, "high"))
    timed.take(created("b3", 500, NOW, "high"))
    stays = Withdrawn("rm", "default", "a2", "g-1-1", "")
    timed.metrics.decided(Decisions([stays, ShadowDecided("rm", recorded())]), timed.now)
    timed.take(_lowered())
    yield timed.metrics.text().decode()
    timed.metrics.close()


def _lowered() -> ConfigurationApplied:
    """Return a configuration with a max below the usage of `root.a`, and with shares by weight."""
    low = replace(LEAF, guaranteed=(), max=resource({"vcore": 1}))
    root = replace(ROOT, children=(low, replace(LEAF, name="b", max=None)))
    weighted = PreemptionSettings(entitlement="proportional")
    return ConfigurationApplied(
        Configuration((PartitionSpec("default", root, preemption=weighted),)), "test"
    )


def _standing(served: Served) -> str:
    """Return the metrics of one of two cores that follow each other."""
    endpoint = served.endpoint
    metrics = Metrics(served.core).add(gauges(endpoint.replica, endpoint.feed, served.clock.now))
    metrics.add(endpoint.gauges)
    text = metrics.text().decode()
    metrics.close()
    return text


def _series(text: str) -> Exported:
    return dict(_labelled(text))


def _labelled(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, frozenset(sample.labels) - {"le"}
