"""The configuration page promises no setting of preemption that nothing in the core reads: of such it says **later**."""

import re
from dataclasses import fields
from pathlib import Path

from server.model.quota import PreemptionSettings
from tests.docs.pages import DOCS

SERVER = Path(__file__).parents[2] / "server"
DECIDING = ("core", "books", "preemption", "scheduling", "view", "kernels")
KEYS = {
    "enabled": "enabled",
    "quotapreemptionenabled": "quota_enabled",
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
"""Of these some values are carried out and others are not; the page says so by hand."""


def test_every_setting_is_looked_at() -> None:
    assert {one.name for one in fields(PreemptionSettings)} == {*KEYS.values()} | BY_VALUE


def test_what_is_not_said_to_come_later_is_there() -> None:
    page = (DOCS / "configuration.md").read_text("utf-8").split("### Preemption, `preemption`")[1]
    rows = dict(re.findall(r"^\| `([\w.-]+)` \|[^|]*\|[^|]*\| ([^|]*) \|", page, re.MULTILINE))
    sources = [
        path.read_text("utf-8") for name in DECIDING for path in (SERVER / name).rglob("*.py")
    ]
    read = set(re.findall(r"\.(\w+)\b(?!\()", "\n".join(sources)))
    promised = {key for key in KEYS if "**later" not in rows[key].lower()}
    assert {key for key in promised if KEYS[key] not in read} == set()
