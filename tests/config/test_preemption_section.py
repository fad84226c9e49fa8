"""The section `preemption` of a partition: every key, its default and its checks."""

import textwrap
from dataclasses import replace
from typing import Any

import pytest

from server.model.quota import PreemptionSettings
from tests.config.texts import assert_problem, cases, only_partition, partition

KEYS = cases(
    ("enabled", "enabled: false", {"enabled": False}),
    ("quota", "quotapreemptionenabled: true", {"quota_enabled": True}),
    ("policies", "policies: [in-queue, job]", {"policies": ("in-queue", "job")}),
    ("no policies", "policies: []", {"policies": ()}),
    ("entitlement", "entitlement: proportional", {"entitlement": "proportional"}),
    ("trigger", "trigger: after", {"trigger": "after"}),
    ("equal priority", "equalpriority: never", {"equal_priority": "never"}),
    ("rounds", "rounds: {interval: 10s}", {"rounds_interval_ms": 10_000}),
    ("pace without a value", "pace:", {"pace_permyriad": 1_000}),
    ("empty pace", "pace: {}", {"pace_permyriad": 1_000}),
    ("pace without a share", "pace: {perround: }", {"pace_permyriad": 1_000}),
    ("no pace", "pace: {perround: 0}", {}),
    (
        "pace",
        "pace: {perround: 5%, perqueue: 2.5%, perapplication: 1%, window: 1m, deadzone: 10%, "
        "naturaltermination: 12.5%}",
        {
            "pace_permyriad": 500,
            "pace_queue_permyriad": 250,
            "pace_application_permyriad": 100,
            "pace_window_ms": 60_000,
            "deadzone_permyriad": 1_000,
            "natural_permyriad": 1_250,
        },
    ),
    ("firm jobs", "job: {disableDefaultPreemptiable: true}", {"job_default_preemptible": False}),
    ("quiet jobs", "job: {disableDefaultTriggerPreemption: true}", {"job_default_trigger": False}),
    ("jobs deleted", "job: {podShouldBeDeletedWhenPreempted: true}", {"job_delete": True}),
    ("jobs marked", "job: {podShouldBeDeletedWhenPreempted: false}", {"job_delete": False}),
    (
        "gangs",
        "job: {victimgang: avoid, gathering: 5s}",
        {"job_victim_gang": "avoid", "job_gathering_ms": 5_000},
    ),
    ("budgets", "disruptionbudgets: respect", {"disruption_budgets": "respect"}),
    ("delivery", "delivery: evict", {"delivery": "evict"}),
    ("cross node", "crossnode: quota", {"cross_node": "quota"}),
    ("firm break", "firmbreak: true", {"firm_break": True}),
    ("backoff", "backoff: 1m", {"backoff_ms": 60_000}),
    ("expiry", "expiry: 5m", {"expiry_ms": 300_000}),
    ("observe", "observeonly: true", {"observe_only": True}),
    (
        "order",
        "order: {claim: [lost-work, age], quota: [size], required-node: [fit], job: [job], trim: [age]}",
        {
            "order_claim": ("lost-work", "age"),
            "order_quota": ("size",),
            "order_required_node": ("fit",),
            "order_job": ("job",),
            "order_trim": ("age",),
        },
    ),
    ("an empty order", "order: {claim: []}", {}),
    (
        "plain shares",
        "{entitlement: proportional, proportion: {demandcap: false}}",
        {"entitlement": "proportional", "demand_cap": False, "trigger": "after"},
    ),
    (
        "crossing allowed",
        "{entitlement: proportional, trigger: after, proportion: {overshoot: last}}",
        {"entitlement": "proportional", "trigger": "after", "proportion_overshoot": "last"},
    ),
)
BAD = cases(
    ("unknown key", "polcies: []", "polcies", "did you mean 'policies'?"),
    (
        "unknown policy",
        "policies: [job, fairness]",
        "policies[1]",
        "'fairness' is not allowed here",
    ),
    ("policy twice", "policies: [job, job]", "policies[1]", "is listed twice"),
    ("policies as text", "policies: job", "policies", "must be a list"),
    ("entitlement", "entitlement: fair", "entitlement", "expected 'guaranteed' or 'proportional'"),
    ("trigger", "trigger: never", "trigger", "expected 'before' or 'after'"),
    (
        "equal priority",
        "equalpriority: true",
        "equalpriority",
        "expected 'allow', 'never' or 'ignore'",
    ),
    ("budgets", "disruptionbudgets: no", "disruptionbudgets", "expected 'respect'"),
    ("delivery", "delivery: kill", "delivery", "expected 'delete'"),
    ("cross node", "crossnode: always", "crossnode", "expected 'never' or 'quota'"),
    ("enabled in quotes", "enabled: 'true'", "enabled", "must be true or false"),
    ("interval without unit", "rounds: {interval: 10}", "rounds.interval", "a number needs a unit"),
    ("negative interval", "rounds: {interval: -1s}", "rounds.interval", "is negative"),
    ("pace without percent", "pace: {perround: 10}", "pace.perround", "is not a share"),
    ("pace beyond all", "pace: {perqueue: 101%}", "pace.perqueue", "more than 100%"),
    (
        "a factor without percent",
        "pace: {naturaltermination: 0.2}",
        "pace.naturaltermination",
        "is not a share",
    ),
    (
        "a factor beyond all",
        "pace: {naturaltermination: 120%}",
        "pace.naturaltermination",
        "more than 100%",
    ),
    (
        "a factor as YARN's",
        "pace: {naturalTermination: 20%}",
        "pace.naturalTermination",
        "did you mean 'naturaltermination'?",
    ),
    (
        "pace in the seed's case",
        "pace: {perRound: 10%}",
        "pace.perRound",
        "did you mean 'perround'?",
    ),
    (
        "a key that is fixed",
        "order: {claim: [age, priority]}",
        "order.claim[1]",
        "the key 'priority' is fixed: protection, originator, priority come first here",
    ),
    ("a key twice", "order: {trim: [age, size, age]}", "order.trim[2]", "is listed twice"),
    ("an unknown key", "order: {quota: [oldest]}", "order.quota[0]", "'oldest' is not allowed"),
    ("order of what", "order: {claims: [age]}", "order.claims", "did you mean 'claim'?"),
    ("order as text", "order: {claim: age}", "order.claim", "must be a list"),
    ("backoff of 0", "backoff: 0s", "backoff", "must be above 0"),
    ("expiry of 0", "expiry: 0", "expiry", "must be above 0"),
    ("gang", "job: {victimgang: all}", "job.victimgang", "expected 'whole' or 'avoid'"),
    (
        "job key",
        "job: {disableDefaultPreemptible: true}",
        "job.disableDefaultPreemptible",
        "did you mean",
    ),
    (
        "overshoot",
        "proportion: {overshoot: first}",
        "proportion.overshoot",
        "expected 'none' or 'last'",
    ),
    (
        "overshoot without after",
        "{entitlement: proportional, proportion: {overshoot: last}}",
        "proportion.overshoot",
        "needs `trigger: after`",
    ),
    (
        "before with plain shares",
        "{entitlement: proportional, trigger: before, proportion: {demandcap: false}}",
        "trigger",
        "cannot be combined with proportion.demandcap false",
    ),
    ("shadow of a shadow", "shadow: {shadow: {}}", "shadow.shadow", "unknown key"),
    (
        "unknown key of the shadow",
        "shadow: {policy: []}",
        "shadow.policy",
        "did you mean 'policies'?",
    ),
    ("bad value of the shadow", "shadow: {trigger: x}", "shadow.trigger", "is not allowed here"),
    (
        "shadow that contradicts",
        "{entitlement: proportional, trigger: after, proportion: {overshoot: last}, shadow: {trigger: before}}",
        "shadow.proportion.overshoot",
        "needs `trigger: after`",
    ),
)


def section(text: str) -> str:
    """Return a text of one partition with this preemption section, its last line marked."""
    if text.startswith("{"):
        return partition(f"queues: []\npreemption: {text}  # <-")
    return partition(f"queues: []\npreemption:\n{textwrap.indent(text, '  ')}  # <-")


def settings(text: str) -> PreemptionSettings:
    return only_partition(section(text)).preemption


@pytest.mark.parametrize(
    "text", ["queues: []", "queues: []\npreemption:", "queues: []\npreemption: {}"]
)
def test_without_a_section_all_is_as_the_specification_says(text: str) -> None:
    assert only_partition(partition(text)).preemption == PreemptionSettings(
        enabled=True,
        quota_enabled=False,
        policies=("required-node", "guaranteed"),
        entitlement="guaranteed",
        demand_cap=True,
        trigger="before",
        equal_priority="allow",
        rounds_interval_ms=0,
        pace_permyriad=0,
        job_default_preemptible=True,
        job_default_trigger=True,
        job_delete=None,
        job_victim_gang="whole",
        job_gathering_ms=2_000,
        disruption_budgets="prefer",
        delivery="delete",
        cross_node="never",
        firm_break=False,
        backoff_ms=15_000,
        expiry_ms=600_000,
        observe_only=False,
        shadow={},
    )


@pytest.mark.parametrize(("text", "expected"), KEYS)
def test_a_key_changes_its_setting_alone(text: str, expected: dict[str, Any]) -> None:
    assert settings(text) == PreemptionSettings(**expected)


@pytest.mark.parametrize(("text", "path", "words"), BAD)
def test_a_bad_key_is_refused(text: str, path: str, words: str) -> None:
    assert_problem(section(text), "error", f"partitions[0].preemption.{path}", words)


def test_a_shadow_holds_what_differs_from_the_live_settings() -> None:
    live = settings(
        "{trigger: after, backoff: 1m, shadow: {policies: [job], trigger: after, pace: , backoff: 2m}}"
    )
    assert live.shadow == {"policies": ("job",), "pace_permyriad": 1_000, "backoff_ms": 120_000}
    shadow: dict[str, Any] = dict(live.shadow)
    assert replace(live, **shadow).trigger == "after"


def test_a_shadow_of_plain_shares_claims_after() -> None:
    shadow = settings("shadow: {entitlement: proportional, proportion: {demandcap: false}}").shadow
    assert shadow == {"entitlement": "proportional", "demand_cap": False, "trigger": "after"}
