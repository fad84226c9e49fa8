"""The conversion of a partition's `preemption` section into settings.

The module applies defaults, and checks keys that depend on each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from server.config import shape
from server.config.problems import Path, Reporter
from server.model.comparing import FIXED
from server.model.quota import PreemptionSettings

FIELDS: Final[dict[tuple[str, ...], str]] = {
    ("enabled",): "enabled",
    ("quotapreemptionenabled",): "quota_enabled",
    ("quotatimers",): "quota_timers",
    ("policies",): "policies",
    ("entitlement",): "entitlement",
    ("proportion", "demandcap"): "demand_cap",
    ("proportion", "overshoot"): "proportion_overshoot",
    ("trigger",): "trigger",
    ("equalpriority",): "equal_priority",
    ("rounds", "interval"): "rounds_interval_ms",
    ("pace", "perround"): "pace_permyriad",
    ("pace", "perqueue"): "pace_queue_permyriad",
    ("pace", "perapplication"): "pace_application_permyriad",
    ("pace", "window"): "pace_window_ms",
    ("pace", "deadzone"): "deadzone_permyriad",
    ("pace", "naturaltermination"): "natural_permyriad",
    ("job", "disableDefaultPreemptiable"): "job_default_preemptible",
    ("job", "disableDefaultTriggerPreemption"): "job_default_trigger",
    ("job", "podShouldBeDeletedWhenPreempted"): "job_delete",
    ("job", "victimgang"): "job_victim_gang",
    ("job", "gathering"): "job_gathering_ms",
    ("disruptionbudgets",): "disruption_budgets",
    ("delivery",): "delivery",
    ("crossnode",): "cross_node",
    ("firmbreak",): "firm_break",
    ("backoff",): "backoff_ms",
    ("expiry",): "expiry_ms",
    ("observeonly",): "observe_only",
    ("order", "claim"): "order_claim",
    ("order", "quota"): "order_quota",
    ("order", "required-node"): "order_required_node",
    ("order", "job"): "order_job",
    ("order", "trim"): "order_trim",
}
"""The keys of the section, each with the field of `PreemptionSettings` that it sets."""


OPPOSITE: Final = {
    ("job", "disableDefaultPreemptiable"),
    ("job", "disableDefaultTriggerPreemption"),
}
"""The keys whose value in the file is the opposite of the value of their field."""


def settings(
    written: shape.LivePreemption | None, where: Path, reporter: Reporter
) -> PreemptionSettings:
    """Return the preemption settings of a partition, and report problems.

    Return the defaults if the partition has no section `preemption`.
    """
    if written is None:
        return PreemptionSettings()
    live = _with(PreemptionSettings(), written, where, reporter)
    if written.shadow is None:
        return live
    shadow = _with(live, written.shadow, (*where, "shadow"), reporter)
    other = {
        name: getattr(shadow, name)
        for name in FIELDS.values()
        if getattr(shadow, name) != getattr(live, name)
    }
    return replace(live, shadow=other)


def _with(
    base: PreemptionSettings, written: shape.Preemption, where: Path, reporter: Reporter
) -> PreemptionSettings:
    """Return the base settings with the values that a section sets, and check the result as a whole."""
    given: dict[str, Any] = {}
    tree = written.model_dump(by_alias=True, exclude_unset=True)
    for path, name in FIELDS.items():
        found, value = _at(tree, path)
        if found:
            given[name] = _value(path, value)
    if written.pace:
        given["pace_permyriad"] = written.pace.perround
    _check_policies(written, where, reporter)
    _check_order(tree.get("order") or {}, (*where, "order"), reporter)
    read = replace(base, **given)
    if read.entitlement != "proportional":
        return read
    return _proportional(read, given, where, reporter)


def _value(path: tuple[str, ...], value: object) -> object:
    if isinstance(value, list):
        return tuple(value)
    return not value if path in OPPOSITE else value


def _at(tree: dict[str, Any], path: tuple[str, ...]) -> tuple[bool, object]:
    value: object = tree
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return False, None
        value = value[key]
    return True, value


def _check_policies(written: shape.Preemption, where: Path, reporter: Reporter) -> None:
    for number, policy in enumerate(written.policies):
        if policy in written.policies[:number]:
            reporter.error((*where, "policies", number), f"the policy {policy!r} is listed twice")


def _check_order(written: Mapping[str, Sequence[str]], where: Path, reporter: Reporter) -> None:
    """Check the lists of sort keys under `preemption.order`.

    No list may name a key twice, and no list may name one of the fixed keys with which its order begins (V2).
    """
    for what, keys in written.items():
        fixed = FIXED[what]
        for number, key in enumerate(keys):
            at = (*where, what, number)
            if key in fixed:
                first = ", ".join(fixed)
                message = (
                    f"the key {key!r} is fixed: {first} come first here; write what follows them"
                )
                reporter.error(at, message)
            elif key in keys[:number]:
                reporter.error(at, f"the key {key!r} is listed twice")


def _proportional(
    read: PreemptionSettings, given: dict[str, Any], where: Path, reporter: Reporter
) -> PreemptionSettings:
    """Return settings with shares by weight whose trigger is valid for these shares.

    Report a trigger in the file that is not valid. With plain shares by weight (`demandcap: false`), a queue may claim only if
    its usage and the ask together stay within its share (W2). The trigger is then set to `after`, and `before` in the file is
    an error. `overshoot: last` needs the trigger `after`, too (W8). With `overshoot: last`, any other trigger is an error, and
    is not changed.
    """
    if not read.demand_cap and given.get("trigger") == "before":
        message = "'before' cannot be combined with proportion.demandcap false, which claims only what fits: 'after'"
        reporter.error((*where, "trigger"), message)
    if not read.demand_cap:
        read = replace(read, trigger="after")
    if read.proportion_overshoot == "last" and read.trigger != "after":
        message = (
            "'last' needs `trigger: after`: with 'before' two queues could take turns for ever"
        )
        reporter.error((*where, "proportion", "overshoot"), message)
    return read
