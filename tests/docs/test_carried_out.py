"""The configuration page documents no preemption setting that the core ignores."""

import re
from dataclasses import fields
from pathlib import Path

from server.model.quota import PreemptionSettings
from tests.docs.pages import DOCS

SERVER = Path(__file__).parents[2] / "server"
DECIDING = ("core", "state", "preemption", "scheduling", "snapshot", "kernels")
KEYS = {
    "enabled": "enabled",
    "quotapreemptionenabled": "quota_enabled",
    "quotatimers": "quota_timers",
    "proportion.demandcap": "demand_cap",
    "proportion.overshoot": "proportion_overshoot",
    "trigger": "trigger",
    "equalpriority": "equal_priority",
    "rounds.interval": "rounds_interval_ms",
    "pace.perround": "pace_permyriad",
    "pace.perqueue": "pace_queue_permyriad",
    "pace.perapplication": "pace_application_permyriad",
    "pace.window": "pace_window_ms",
    "pace.deadzone": "deadzone_permyriad",
    "pace.naturaltermination": "natural_permyriad",
    "job.disableDefaultPreemptiable": "job_default_preemptible",
    "job.disableDefaultTriggerPreemption": "job_default_trigger",
    "job.podShouldBeDeletedWhenPreempted": "job_delete",
    "job.victimgang": "job_victim_gang",
    "job.gathering": "job_gathering_ms",
    "disruptionbudgets": "disruption_budgets",
    "delivery": "delivery",
    "crossnode": "cross_node",
    "firmbreak": "firm_break",
    "backoff": "backoff_ms",
    "expiry": "expiry_ms",
    "observeonly": "observe_only",
    "order.claim": "order_claim",
    "order.quota": "order_quota",
    "order.required-node": "order_required_node",
    "order.job": "order_job",
    "order.trim": "order_trim",
    "shadow": "shadow",
}
BY_VALUE = {"policies", "entitlement"}
"""Settings whose values are each looked for where they are carried out."""


def test_every_setting_is_looked_at() -> None:
    assert {one.name for one in fields(PreemptionSettings)} == {*KEYS.values()} | BY_VALUE


def test_every_setting_on_the_page_is_read() -> None:
    page = (DOCS / "configuration.md").read_text("utf-8").split("### Preemption, `preemption`")[1]
    rows = set(re.findall(r"^\| `([\w.-]+)` \|", page, re.MULTILINE))
    sources = [
        path.read_text("utf-8") for name in DECIDING for path in (SERVER / name).rglob("*.py")
    ]
    read = set(re.findall(r"\.(\w+)\b(?!\()", "\n".join(sources)))
    assert KEYS.keys() <= rows
    assert {key for key in KEYS if KEYS[key] not in read} == set()
