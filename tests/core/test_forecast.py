"""The forecast of a configuration on a copy of the core: guarantees, fences, weights, delays and maxima."""

from dataclasses import replace
from typing import Any

import pytest

from server.config import load
from server.core.core import Core
from server.core.queries import forecast as forecasts
from server.core.queries.forecast import forecast
from server.model.asks import AskSpec
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    ManagerRegistered,
    NodeAdded,
)
from server.model.forecast import Forecast
from server.model.quota import Configuration
from server.state.copying import Captured, dismantle

RM = "rm"
NOW = 1_800_000_000_000
TEXT = """
partitions:
  - name: default
    preemption: {quotapreemptionenabled: true}
    placementrules: [{name: provided, create: false}]
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: prod
            resources: {guaranteed: {vcore: 2}}
            properties: {preemption.delay: 4s}
          - {name: batch}
"""


def configuration(text: str) -> Configuration:
    found, problems = load(text, "test")
    assert found is not None, problems
    return found


def full(**more: Any) -> Core:
    """One node of eight cores: six of batch, two of prod, of which two more asks wait; `more` are fields of their specs."""
    core = Core(configuration(TEXT))
    core.handle(ManagerRegistered(RM), NOW)
    core.handle(NodeAdded(RM, "n1", (("vcore", 8_000),)), NOW)
    for name in ("prod", "batch"):
        core.handle(ApplicationAdded(RM, name, f"root.{name}"), NOW)
    one = AskSpec((("vcore", 1_000),))
    for name, count in (("batch", 6), ("prod", 2)):
        for at in range(count):
            core.handle(AskAdded(RM, f"{name}-{at}", name, one), NOW)
    settle(core, NOW)
    for at in (2, 3):
        core.handle(AskAdded(RM, f"prod-{at}", "prod", replace(one, **more)), NOW)
    settle(core, NOW)
    return core


def settle(core: Core, now: int) -> None:
    while core.tick(now).more:
        pass


def foreseen(core: Core, text: str) -> Forecast:
    """Return the forecast of a configuration; the core does not change."""
    before = core.digest()
    found = forecast(core, configuration(text), NOW)
    assert core.digest() == before
    core.validate()
    return found


def victims(found: Forecast) -> list[tuple[int, str, str]]:
    """By decision when it comes, its policy, and the queue of its first victim."""
    (part,) = found.partitions
    return [
        (one.after_ms, one.record.policy, one.record.victims[0].queue) for one in part.decisions
    ]


def test_nothing_follows_the_configuration_in_force() -> None:
    found = foreseen(full(), TEXT)
    assert (victims(found), found.complete) == ([], True)


def test_a_raised_guarantee_evicts_after_the_delay() -> None:
    found = foreseen(full(), TEXT.replace("vcore: 2}", "vcore: 4}"))
    assert victims(found) == [(4_000, "guaranteed", "root.batch")] * 2
    (part,) = found.partitions
    assert [one.key for one in part.placements] == ["prod-2", "prod-3"]
    assert all(one.decision_id for one in part.placements)
    numbers = {one.queue: (one.before, one.after) for one in part.queues}
    before, after = numbers["root.batch"]
    assert before is not None
    assert after is not None
    assert (before.held, after.held) == ({"vcore": 6_000}, {"vcore": 4_000})
    assert found.complete


def test_managers_are_assumed_to_agree_to_evictions_for_asks_that_they_check() -> None:
    raised = TEXT.replace("vcore: 2}", "vcore: 4}")
    found = foreseen(full(rm_check=True, plan_checks=True), raised)
    assert victims(found) == [(4_000, "guaranteed", "root.batch")] * 2
    assert found.assumptions == (forecasts.AGREEING,)
    without = foreseen(full(rm_check=True), raised)
    assert (victims(without), without.assumptions) == ([], ())


def test_the_end_of_a_delay_is_the_same_instant_whenever_it_is_asked_for() -> None:
    core, more = full(), TEXT.replace("vcore: 2}", "vcore: 4}")
    asked = [forecast(core, configuration(more), NOW + ms) for ms in (0, 1_500)]
    found = [
        [(one.after_ms, one.at_ms, [each.key for each in one.record.victims])
         for one in each.partitions[0].decisions]
        for each in asked
    ]  # fmt: skip
    assert [one[1:] for one in found[0]] == [one[1:] for one in found[1]]
    assert {(one[0], one[1]) for one in found[0]} == {(4_000, NOW + 4_000)}
    assert {one[0] for one in found[1]} == {2_500}


def test_the_end_of_a_back_off_is_the_same_instant_whenever_it_is_asked_for() -> None:
    """Behind a fence the asks are refused after four seconds, and tried again fifteen seconds later."""
    more = TEXT.replace("vcore: 2}", "vcore: 4}")
    core = full()
    fenced = more.replace("preemption.delay: 4s", "preemption.delay: 4s, preemption.policy: fence")
    core.handle(ConfigurationApplied(configuration(fenced), "test"), NOW)
    settle(core, NOW + 4_000)
    for ms in (6_000, 11_000):
        (part,) = forecast(core, configuration(more), NOW + ms).partitions
        found = {(one.after_ms, one.at_ms) for one in part.decisions}
        assert found == {(19_000 - ms, NOW + 19_000)}


def test_a_fence_keeps_the_claim_inside() -> None:
    raised = TEXT.replace("vcore: 2}", "vcore: 4}")
    fenced = raised.replace(
        "preemption.delay: 4s", "preemption.delay: 4s, preemption.policy: fence"
    )
    found = foreseen(full(), fenced)
    assert (victims(found), found.complete) == ([], True)


def test_shares_by_weight_say_what_each_queue_would_deserve() -> None:
    weighed = TEXT.replace("{quotapreemptionenabled: true}", "{entitlement: proportional}")
    found = foreseen(full(), weighed)
    assert [policy for _, policy, _ in victims(found)] == ["guaranteed"] * 2
    (part,) = found.partitions
    shares = {one.queue: (one.before, one.applied) for one in part.queues}
    before, applied = shares["root.prod"]
    assert before is not None
    assert applied is not None
    assert (before.deserved, applied.deserved) == (None, {"vcore": 4_000})


def test_a_lowered_maximum_is_enforced_when_its_timer_is_due() -> None:
    lowered = TEXT.replace(
        "{name: batch}",
        "{name: batch, resources: {max: {vcore: 4}}, properties: {quota.preemption.delay: 1m}}",
    )
    found = foreseen(full(), lowered)
    (part,) = found.partitions
    assert [(one.after_ms, one.record.policy) for one in part.decisions] == [(60_000, "quota")]
    assert [one.at_ms for one in part.decisions] == [0]
    (quota,) = part.quotas
    assert (quota.queue, quota.target, quota.due_ms) == (
        "root.batch",
        {"vcore": 2_000},
        NOW + 60_000,
    )
    assert quota.victims == part.decisions[0].record.victims


def test_a_claim_that_comes_first_leaves_less_for_the_quota_run() -> None:
    """Two of batch's pods end after four seconds for prod; its maximum of four cores is then kept already."""
    both = TEXT.replace("vcore: 2}", "vcore: 4}").replace(
        "{name: batch}",
        "{name: batch, resources: {max: {vcore: 4}}, properties: {quota.preemption.delay: 1m}}",
    )
    found = foreseen(full(), both)
    assert victims(found) == [(4_000, "guaranteed", "root.batch")] * 2
    (quota,) = found.partitions[0].quotas
    assert (quota.victims, quota.why_not) == ((), "it is within its max by then")


def test_victims_that_would_be_evicted_without_the_change_are_marked() -> None:
    core = Core(configuration(TEXT.replace("vcore: 2}", "vcore: 4}")))
    core.handle(ManagerRegistered(RM), NOW)
    core.handle(NodeAdded(RM, "n1", (("vcore", 4_000),)), NOW)
    for name in ("prod", "batch"):
        core.handle(ApplicationAdded(RM, name, f"root.{name}"), NOW)
    one = AskSpec((("vcore", 1_000),))
    for at in range(4):
        core.handle(AskAdded(RM, f"batch-{at}", "batch", one), NOW)
    settle(core, NOW)
    core.handle(AskAdded(RM, "prod-0", "prod", one), NOW)
    settle(core, NOW)
    found = foreseen(core, TEXT.replace("vcore: 2}", "vcore: 3}"))
    (decided,) = found.partitions[0].decisions
    assert decided.unchanged == {each.key for each in decided.record.victims}


def test_a_run_beyond_the_horizon_is_not_judged_and_cuts_the_forecast() -> None:
    """The claim at 4 s is judged; the quota run would begin after 30 hours, and a forecast looks 24 hours ahead."""
    both = TEXT.replace("vcore: 2}", "vcore: 4}").replace(
        "{name: batch}",
        "{name: batch, resources: {max: {vcore: 3}}, properties: {quota.preemption.delay: 30h}}",
    )
    found = foreseen(full(), both)
    assert victims(found) == [(4_000, "guaranteed", "root.batch")] * 2
    assert (found.complete, found.cut) == (False, "a simulation looks 24 hours ahead")
    assert found.until_ms == 24 * 3_600_000
    (quota,) = found.partitions[0].quotas
    assert quota.due_ms == NOW + 30 * 3_600_000
    assert (quota.victims, quota.shrink, quota.why_not) == ((), None, "")


def test_what_times_out_in_a_partition_that_is_removed_is_foreseen_at_its_instant() -> None:
    """An ask that gives up after 20 s does so, too, when its partition is not configured any more."""
    core = full()
    patient = AskSpec((("vcore", 8_000),), timeout_ms=20_000)
    core.handle(AskAdded(RM, "patient", "batch", patient), NOW)
    settle(core, NOW)
    other = TEXT.replace("name: default", "name: other")
    found = foreseen(core, other)
    (part,) = [one for one in found.partitions if one.partition == "default"]
    assert part.removed
    assert [(one.after_ms, one.key) for one in part.ends] == [(20_000, "patient")]
    assert found.until_ms == 20_000


RETRIED = """
          - name: prod
            resources: {guaranteed: {vcore: 4}}
            properties: {preemption.delay: 4s}
          - {name: batch, properties: {preemption.minruntime: 20h}}
"""
"""A claim on pods that are protected for 20 hours, which is retried every second."""


def retried() -> str:
    return TEXT.replace(TEXT[TEXT.index("          - name: prod") :], RETRIED[1:]).replace(
        "{quotapreemptionenabled: true}", "{backoff: 1s}"
    )


def test_the_limit_of_ticks_cuts_the_forecast_where_it_says() -> None:
    found = foreseen(full(), retried())
    assert (victims(found), found.complete) == ([], False)
    assert (found.cut, found.ticks) == ("a simulation ends after 5,000 ticks of the core", 5_000)
    assert 4_000_000 < found.until_ms < 20 * 3_600_000


def test_a_cut_in_the_middle_of_an_instant_calls_it_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two pods are evicted in the first tick of the instant of 4 s, of which nothing more is judged."""
    raised = TEXT.replace("vcore: 2}", "vcore: 4}")
    ticks = foreseen(full(), raised).ticks
    monkeypatch.setattr(forecasts, "TICKS_MAX", 1)
    found = foreseen(full(), raised)
    assert (victims(found), found.until_ms, found.complete) == ([], 0, False)
    for most in range(2, ticks):
        monkeypatch.setattr(forecasts, "TICKS_MAX", most)
        found = foreseen(full(), raised)
        if victims(found):
            break
    assert len(victims(found)) == 2
    assert (found.until_ms < 4_000, found.complete) == (True, False)


def test_what_would_be_evicted_without_the_change_may_be_cut_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the change a pod is evicted at once and all is settled; without it the claim is retried for 20 hours."""
    monkeypatch.setattr(forecasts, "TICKS_MAX", 100)
    core = full()
    core.handle(ConfigurationApplied(configuration(retried()), "test"), NOW)
    settle(core, NOW)
    found = foreseen(core, retried().replace("20h", "1s"))
    assert (len(victims(found)), found.complete) == (2, True)
    (said,) = found.assumptions
    assert said.startswith("what would be evicted without the change was simulated only until")


def test_reservations_that_end_and_are_made_again_are_assumed_to_go_on() -> None:
    core = full()
    core.handle(AskAdded(RM, "large", "batch", AskSpec((("vcore", 7_000),))), NOW)
    settle(core, NOW)
    bounded = TEXT.replace("name: default", "name: default\n    reservations: {timeout: 10s}")
    assert foreseen(core, bounded).assumptions == (forecasts.RESERVING,)
    off = TEXT.replace("name: default", "name: default\n    reservations: {enabled: false}")
    assert foreseen(core, off).assumptions == ()


def test_a_partition_whose_manager_has_not_sent_everything_is_not_judged() -> None:
    core = Core(configuration(TEXT))
    core.handle(ManagerRegistered(RM, explicit_sync=True), NOW)
    core.handle(NodeAdded(RM, "n1", (("vcore", 8_000),)), NOW)
    (part,) = foreseen(core, TEXT).partitions
    assert part.unsynced


def test_a_copy_is_the_same_and_shares_nothing_that_changes() -> None:
    core = full()
    before = core.digest()
    copy = Captured(core).rebuild()
    assert copy.digest() == before
    copy.validate()
    mine = {id(one) for one in _mutable(core)}
    assert not [one for one in _mutable(copy) if id(one) in mine]
    dismantle(copy)
    assert core.digest() == before
    core.validate()


def _mutable(core: Core) -> list[object]:
    return [
        one
        for batch in Captured(core)._batches
        if not issubclass(batch.cls, tuple)
        for one in batch.objects
    ]
