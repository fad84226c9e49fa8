"""Warnings about a correct configuration that may have an effect which its author does not expect.

Each warning states the consequence.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from server.config import shape
from server.config.preemption import FIELDS
from server.config.problems import Path, Reporter
from server.config.quantities import PERMYRIAD
from server.config.tree import Draft
from server.model.policies import IN_QUEUE, JOB, REQUIRED_NODE, PolicyFacts, Scope, facts
from server.model.quota import (
    NOBODY,
    PREEMPTION_DELAY,
    QUOTA_DELAY,
    WILDCARD,
    PlacementRule,
    PreemptionSettings,
)
from server.model.shadow import NO_EFFECT, is_on
from server.model.spelling import duration_text, quantity_text

SECONDS_SUSPICIOUS: Final = 60
"""The number of seconds below which a quota delay under `resources` was probably meant in minutes.

In published examples, a value of 5 means five minutes.
"""
EXPIRY_MS_SAFE: Final = 60_000
RESERVATION_MS_USEFUL: Final = 30_000
"""The shortest safe expiry of a decision (`EXPIRY_MS_SAFE`), and the shortest useful timeout of a reservation.

The safe expiry is 30 s longer than Kubernetes' default grace period, which is 30 s.
"""
OF_SINGLE_ASKS: Final = frozenset({Scope.OTHER_QUEUES, Scope.OWN_QUEUE})
"""The scopes of policies that evict pods for asks that belong to no gang."""


Warned = tuple[Path, str, str, str]
"""A warning about the section `preemption`: the path inside the section, the code, the message and the consequence."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A partition whose text has no errors, with all values that a warning may depend on."""

    written: shape.Partition
    where: Path
    root: Draft
    settings: PreemptionSettings
    rules: tuple[PlacementRule, ...]


def lint(checked: Checked, reporter: Reporter) -> None:
    """Report all warnings of a partition."""
    for draft in checked.root.walk():
        _amounts(draft.maximum, draft.guaranteed, (*draft.where, "resources"), reporter)
        _structure(draft, reporter)
        _shares_of_children(draft, reporter)
        _quota_delay(draft, checked.settings, reporter)
        _weight(draft, checked.settings, reporter)
        _claim_delay(draft, checked.settings, reporter)
        _limits(draft, reporter)
        if draft.template and not draft.leaf:
            _template(draft, reporter)
    _access(checked.root, reporter)
    for number, rule in enumerate(checked.rules):
        _filters(rule, (*checked.where, "placementrules", number), reporter)
    if checked.written.preemption:
        _preemption(checked, reporter)
    _reservations(checked, reporter)


# Queues ---------------------------------------------------------------------------------------------------------


def _amounts(
    maximum: Mapping[str, int], guaranteed: Mapping[str, int], where: Path, reporter: Reporter
) -> None:
    for kind, amount in maximum.items():
        if amount == 0:
            reporter.warning(
                (*where, "max", kind),
                "max-zero",
                f"{kind} 0 forbids the type",
                f"no pod that asks for {kind} runs here",
            )
    for key, amounts in (("max", maximum), ("guaranteed", guaranteed)):
        if "cpu" in amounts:
            consequence = "pods' CPU arrives as `vcore`, so this has no effect on it"
            reporter.warning(
                (*where, key, "cpu"), "cpu-is-vcore", "the type of CPU is `vcore`", consequence
            )


def _structure(draft: Draft, reporter: Reporter) -> None:
    if draft.shape.parent is False and not draft.leaf:
        reason = "it has queues below it" if draft.children else "root is always a parent"
        reporter.warning(
            (*draft.where, "parent"),
            "parent-false",
            f"false, but {reason}",
            "the queue is a parent",
        )
    if draft.template and draft.leaf:
        consequence = "no queue is ever created below a leaf; set `parent: true` if that was meant"
        reporter.warning(
            (*draft.where, "childtemplate"), "template-at-leaf", "stands at a leaf", consequence
        )


def _shares_of_children(draft: Draft, reporter: Reporter) -> None:
    """Warn of a queue whose children all guarantee a type, but together guarantee less of it than the queue itself.

    No child can claim the difference (G2).
    """
    for kind, amount in draft.guaranteed.items():
        parts = [child.guaranteed.get(kind, 0) for child in draft.children]
        if parts and all(parts) and sum(parts) < amount:
            rest = quantity_text(kind, amount - sum(parts))
            reporter.warning(
                (*draft.where, "resources", "guaranteed", kind),
                "child-guarantees-less",
                f"every queue below has its own guarantee of {kind}, together {rest} less than this",
                f"no queue below can claim those {rest} by preemption, because its own smaller guarantee decides",
            )


def _quota_delay(draft: Draft, settings: PreemptionSettings, reporter: Reporter) -> None:
    """Warn about `quota.preemption.delay`, and about settings without which this delay has no effect."""
    delay = draft.properties.quota_delay_ms
    if delay > 0:
        _tight_quota(draft, reporter)
    if draft.own.get("quota_delay_ms", 0) <= 0:
        return
    where = draft.quota_delay_where
    seconds = draft.shape.resources.quota_delay_s
    if seconds is not None and seconds < SECONDS_SUSPICIOUS:
        message = f"{seconds} under resources are {seconds} seconds"
        consequence = f"preemption begins {seconds} s after a quota was lowered; minutes are written {60 * seconds}"
        reporter.warning(where, "quota-delay-seconds", message, consequence)
    if not settings.quota_enabled:
        consequence = f"a lowered max stops new pods but preempts none, although {QUOTA_DELAY} is {duration_text(delay)}"
        reporter.warning(
            where,
            "quota-not-enabled",
            "preemption.quotapreemptionenabled is not true in this partition",
            consequence,
        )


def _tight_quota(draft: Draft, reporter: Reporter) -> None:
    """Warn of a max that equals the guarantee. Such a max is accepted (Q8)."""
    for kind, amount in draft.maximum.items():
        if amount and draft.guaranteed.get(kind) == amount:
            reporter.warning(
                (*draft.where, "resources", "max", kind),
                "max-equals-guarantee",
                "equals the guarantee, and lowered quotas are enforced here",
                "a pod larger than the rest above the guarantee is protected, so usage may stay above max",
            )


def _weight(draft: Draft, settings: PreemptionSettings, reporter: Reporter) -> None:
    kinds = (settings.entitlement, settings.shadow.get("entitlement"))
    if draft.shape.weight != 1 and "proportional" not in kinds:
        consequence = "queues share by guarantee, not by weight"
        reporter.warning(
            (*draft.where, "weight"),
            "weight-unused",
            "counts only with `entitlement: proportional`",
            consequence,
        )


def _claim_delay(draft: Draft, settings: PreemptionSettings, reporter: Reporter) -> None:
    """Warn of a delay that has no effect on claims by weight (W6). Preemption within a queue keeps its delay (I5)."""
    if settings.entitlement != "proportional" or PREEMPTION_DELAY not in draft.shape.properties:
        return
    replaces = settings.lists(IN_QUEUE)
    what = "counts for policy in-queue alone" if replaces else "has no effect"
    reporter.warning(
        (*draft.where, "properties", PREEMPTION_DELAY),
        "delay-unused",
        f"{what} with `entitlement: proportional`",
        "an ask of a queue below its share claims as soon as it does not fit",
    )


def _template(draft: Draft, reporter: Reporter) -> None:
    template = draft.template
    assert template is not None
    where = (*draft.where, "childtemplate")
    _amounts(template.maximum, template.guaranteed, (*where, "resources"), reporter)
    if template.own.get("quota_delay_ms"):
        written = draft.shape.childtemplate
        section = "properties" if written and QUOTA_DELAY in written.properties else "resources"
        consequence = "a lowered template does not touch existing queues, and a dynamic queue has no timer of its own"
        reporter.warning(
            (*where, section, QUOTA_DELAY),
            "template-quota-delay",
            "has no effect on dynamic queues",
            consequence,
        )


# People ---------------------------------------------------------------------------------------------------------


def _limits(draft: Draft, reporter: Reporter) -> None:
    for number, entry in enumerate(draft.limits):
        if WILDCARD in entry.users:
            at = (*draft.limits_where, number, "users", entry.users.index(WILDCARD))
            consequence = "each user without a limit of his own gets this much, so users together may use many times it"
            reporter.warning(
                at,
                "limit-per-user",
                "`*` is every single user, not all of them together",
                consequence,
            )


def _access(draft: Draft, reporter: Reporter) -> None:
    """Report the highest queues into which no user may submit."""
    if _has_access(draft):
        return
    below = [child for child in draft.walk() if child is not draft and _has_access(child)]
    if not below:
        key = "submitacl"
        message = "neither this queue nor one above or below it has a submitacl or adminacl"
        consequence = "nobody can submit an application here; `submitacl: '*'` admits everybody"
        at = (*draft.where, key) if draft.above else draft.where
        reporter.warning(at, "access-nobody", message, consequence)
        return
    for child in draft.children:
        _access(child, reporter)


def _has_access(draft: Draft) -> bool:
    return draft.shape.submitacl != NOBODY or draft.shape.adminacl != NOBODY


def _filters(rule: PlacementRule, at: Path, reporter: Reporter) -> None:
    """Warn of a rule that never applies, because its filter denies all users."""
    listed = rule.filter and (
        rule.filter.users
        or rule.filter.groups
        or rule.filter.user_pattern
        or rule.filter.group_pattern
    )
    if rule.filter and not rule.filter.allow and not listed:
        reporter.warning(
            (*at, "filter"),
            "filter-denies-all",
            "denies everybody, because it names nobody",
            "the rule never matches",
        )
    if rule.parent:
        _filters(rule.parent, (*at, "parent"), reporter)


def _reservations(checked: Checked, reporter: Reporter) -> None:
    """Warn of a timeout of reservations that never has an effect, and of a timeout that is too short for a useful reservation."""
    written = checked.written.reservations
    if "timeout" not in written.model_fields_set:
        return
    where = (*checked.where, "reservations", "timeout")
    if not written.enabled:
        message = "reservations are switched off"
        reporter.warning(where, "reservations-off", message, "this key has no effect")
    elif 0 < written.timeout < RESERVATION_MS_USEFUL:
        message = f"{duration_text(written.timeout)} is shorter than most pods run"
        effect = "a large pod hardly ever gets its node by a reservation"
        reporter.warning(where, "reservations-short", message, effect)


# Preemption -----------------------------------------------------------------------------------------------------


def _preemption(checked: Checked, reporter: Reporter) -> None:
    where = (*checked.where, "preemption")
    for key, code, message, consequence in _preemption_warnings(checked):
        reporter.warning((*where, *key), code, message, consequence)


def _preemption_warnings(checked: Checked) -> Iterator[Warned]:
    written, settings = checked.written.preemption, checked.settings
    assert written is not None
    listed = _lists(settings, JOB)
    if written.job and written.job.model_fields_set - {"gathering"} and not listed:
        yield (
            ("job",),
            "job-unused",
            "the policy `job` is not listed",
            "jobs are not planned as a whole, firm pods are ordinary ones",
        )
    if (
        "proportional" not in (settings.entitlement, settings.shadow.get("entitlement"))
        and written.proportion
    ):
        yield (
            ("proportion",),
            "proportion-unused",
            "entitlement is not proportional",
            "these keys have no effect",
        )
    if settings.delivery == "soft" or (settings.job_delete is False and listed):
        key: Path = (
            ("delivery",)
            if settings.delivery == "soft"
            else ("job", "podShouldBeDeletedWhenPreempted")
        )
        yield (
            key,
            "soft-delivery",
            "victims are only marked",
            "they keep running, and the claim waits, until another operator deletes the pods that carry "
            "the label scheduling.koordinator.sh/soft-eviction",
        )
    if settings.expiry_ms < EXPIRY_MS_SAFE:
        message = (
            f"{duration_text(settings.expiry_ms)} is shorter than the usual grace period and 30 s"
        )
        yield (
            ("expiry",),
            "expiry-short",
            message,
            "a decision may expire while its victims still terminate, and be planned again",
        )
    yield from _trigger_warnings(settings)
    yield from _firm_warnings(settings)
    yield from _pace_warnings(settings)
    yield from _natural_warnings(settings)
    yield from _order_warnings(settings)
    yield from _shadow_warnings(written, settings)


def _pace_warnings(settings: PreemptionSettings) -> Iterator[Warned]:
    """Yield warnings about budgets whose effect depends on how long a round lasts (P5)."""
    shares = (
        settings.pace_permyriad,
        settings.pace_queue_permyriad,
        settings.pace_application_permyriad,
    )
    interval, window = settings.rounds_interval_ms, settings.pace_window_ms
    if any(shares) and not interval and not window:
        effect = "every tick is a round and may release as much again; only what was put off waits for `backoff`"
        yield ("pace",), "pace-every-tick", "neither rounds.interval nor pace.window is set", effect
    if window and not any(shares):
        yield (
            ("pace", "window"),
            "window-unused",
            "there is no budget",
            "there is nothing to count together",
        )
    elif window and window <= interval:
        message = f"{duration_text(window)} is no longer than rounds.interval"
        yield (
            ("pace", "window"),
            "window-unused",
            message,
            "it holds one round at a time, as it would without",
        )


def _natural_warnings(settings: PreemptionSettings) -> Iterator[Warned]:
    """Yield warnings about natural termination: the largest share of its surplus that a queue loses in a round (P9)."""
    where, share = ("pace", "naturaltermination"), settings.natural_permyriad
    if share == PERMYRIAD:
        yield where, "natural-unused", "100% is all of the over-use", "nothing is held back by it"
    elif share and not settings.rounds_interval_ms:
        effect = "every tick is a round with a share of its own; only asks that were put off wait for `backoff`"
        yield where, "natural-every-tick", "rounds.interval is not set", effect


def _order_warnings(settings: PreemptionSettings) -> Iterator[Warned]:
    """Yield warnings about orders of victims for policies that are turned off (V2)."""
    kinds = (settings.entitlement, settings.shadow.get("entitlement"))
    idle = (
        ("quota", settings.order_quota and not settings.quota_enabled, "quotas are not enforced"),
        (
            "required-node",
            settings.order_required_node and not _lists(settings, REQUIRED_NODE),
            "the policy `required-node` is not listed",
        ),
        ("job", settings.order_job and not _lists(settings, JOB), "the policy `job` is not listed"),
        (
            "trim",
            settings.order_trim and "proportional" not in kinds,
            "entitlement is not proportional",
        ),
    )
    for key, given, message in idle:
        if given:
            yield ("order", key), "order-unused", message, "the order has no effect"


def _shadow_warnings(
    written: shape.LivePreemption, settings: PreemptionSettings
) -> Iterator[Warned]:
    """Yield warnings about a shadow with the live settings, and about keys without effect in a shadow (docs/shadow.md)."""
    if written.shadow is None:
        return
    for path, name in FIELDS.items():
        if name in settings.shadow and name in NO_EFFECT:
            yield ("shadow", *path), "shadow-unused", "has no effect in a shadow", NO_EFFECT[name]
    if not is_on(settings):
        message = "the shadow decides nothing else than the settings in force"
        yield ("shadow",), "shadow-idle", message, "it is not evaluated, and no difference is shown"


def _lists(settings: PreemptionSettings, policy: PolicyFacts) -> bool:
    """Return whether the settings in force or the settings of the shadow list the policy."""
    shadow = settings.shadow.get("policies", ())
    return settings.lists(policy) or (isinstance(shadow, tuple) and policy.name in shadow)


def _trigger_warnings(settings: PreemptionSettings) -> Iterator[Warned]:
    """Yield a warning if single asks need a label to preempt, because each counts as a gang of one member (J3)."""
    others = [name for name in settings.policies if facts(name).scope in OF_SINGLE_ASKS]
    if settings.job_default_trigger or not settings.lists(JOB) or not others:
        return
    yield (
        ("job", "disableDefaultTriggerPreemption"),
        "trigger-needs-label",
        f"it binds every ask, also those of `{'` and `'.join(others)}`",
        'no pod is evicted for one that is not labelled can-preempt: "true"; DaemonSets\' pods need no label',
    )


def _firm_warnings(settings: PreemptionSettings) -> Iterator[Warned]:
    """Yield warnings about settings for the eviction of firm pods (G11).

    In the original rules of required-node preemption (seed 001), no pod is firm. Under those rules, a pod that is firm here can
    thus be evicted.
    """
    listed = settings.lists(JOB)
    if settings.firm_break:
        effect = "a DaemonSet pod may preempt pods that are marked as never preemptible"
        yield (
            ("firmbreak",),
            "firm-broken",
            "firm pods may be broken",
            effect if listed else "no effect: without the policy `job` no pod is firm",
        )
    elif listed and settings.lists(REQUIRED_NODE):
        effect = "a DaemonSet pod waits when only firm pods run on its node"
        yield ("firmbreak",), "firm-not-broken", "firm pods are never broken", effect
