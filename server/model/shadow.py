"""The shadow of a partition: a second set of settings that is evaluated, too. Plans by these settings are never carried out.

A record has the live decision and the shadow's decision for one ask, or for one queue with a surplus reclaim. The shadow plans
on the live state, which includes the effects of every live decision. The decisions of the shadow change nothing.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from server.model.phrases import count
from server.model.quota import PreemptionSettings
from server.model.records import Lost, Victim
from server.model.resources import NOTHING, Resource

NO_EFFECT: Final[Mapping[str, str]] = {
    "quota_enabled": "quota runs are those of the live settings",
    "quota_timers": "quota runs are those of the live settings",
    "order_quota": "quota runs are those of the live settings",
    "job_default_preemptible": "which pods are firm is as the live settings say",
    "delivery": "no pod is evicted for a shadow",
    "job_delete": "no pod is evicted for a shadow",
    "job_gathering_ms": "when a gang is whole is as the live settings say",
    "expiry_ms": "what a shadow decides stands as long as its ask waits and its victims run",
    "observe_only": "a shadow only observes in any case",
}
"""The fields that have no effect in a shadow, each with the reason."""


def settings_of(live: PreemptionSettings) -> PreemptionSettings:
    """Return the settings with which the shadow plans. A field that has no effect in a shadow keeps its live value."""
    other = {name: value for name, value in live.shadow.items() if name not in NO_EFFECT}
    return replace(live, **{**other, "shadow": {}})  # type: ignore[arg-type]


def is_on(live: PreemptionSettings) -> bool:
    """Return whether the partition has a shadow whose decisions may differ from the live decisions."""
    return not live.shadow.keys() <= NO_EFFECT.keys()


class Difference(enum.StrEnum):
    """The kind of difference between the shadow's decision and the live decision for an ask."""

    SAME = "same"
    """The shadow's decision has the same node and the same victims as the live decision."""
    OTHER_VICTIMS = "other-victims"
    """The shadow's decision has the same node as the live decision, but other victims."""
    OTHER_NODE = "other-node"
    ONLY_LIVE = "only-live"
    """There is a live decision for the ask, but the shadow has none."""
    ONLY_SHADOW = "only-shadow"
    """The shadow has a decision for the ask, but there is no live decision."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A live decision or a decision of the shadow: its policy, its node and its victims.

    ``decision_id`` is set only for a live decision.
    """

    policy: str
    node_id: str
    victims: tuple[Victim, ...] = ()
    decision_id: str = ""


@dataclass(frozen=True, slots=True)
class ShadowRecord:
    """A record of one ask, or of one queue with a surplus reclaim (see ``kind``).

    The record has a live decision, a decision of the shadow, or both.

    If one of the two decisions is missing, ``law`` has the rule that refused it, and ``because`` has the text of this refusal.
    ``at_ms`` is the instant of the record's last change. If ``ended_ms`` is 0, the record is still valid.
    """

    partition: str
    key: str
    kind: str
    queue: str
    at_ms: int
    difference: Difference
    live: Choice | None = None
    shadow: Choice | None = None
    law: str = ""
    because: str = ""
    application_id: str = ""
    resource: Resource = NOTHING
    priority: int = 0
    ended_ms: int = 0
    end_reason: str = ""


class Sum(NamedTuple):
    """The totals of the live decisions or of the shadow's decisions under one policy, since the settings came into force."""

    decisions: int = 0
    lost: Lost = Lost()


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """The shadow of a partition: the settings that differ, the latest records, and totals.

    ``sums`` has the totals by policy, for `live` and `shadow` separately. ``told`` has the number of records for each kind of
    difference. ``sums`` and ``told`` begin at ``since_ms``, the instant at which these settings came into force. ``forgotten``
    is the number of records that were dropped.
    """

    partition: str
    settings: Mapping[str, object]
    since_ms: int
    records: tuple[ShadowRecord, ...] = ()
    sums: Mapping[tuple[str, str], Sum] = field(default_factory=dict)
    told: Mapping[Difference, int] = field(default_factory=dict)
    forgotten: int = 0


def sentence(record: ShadowRecord) -> str:
    """Return a record as a sentence for users."""
    live, shadow = _words(record.live, "goes"), _words(record.shadow, "would go")
    if record.ended_ms:
        return f"the shadow alone had decided ({shadow}); that ended: {record.end_reason}"
    why = f" ({record.law})" if record.law else ""
    rest = f"{why}: {record.because}" if record.because else why
    match record.difference:
        case Difference.SAME:
            return f"the shadow decides the same: {live}"
        case Difference.ONLY_LIVE:
            return f"{live}; the shadow gives it nothing{rest}"
        case Difference.ONLY_SHADOW:
            return f"under the shadow {shadow}; the live side gives it nothing{rest}"
        case _:
            return f"{live}; under the shadow {shadow}"


def _words(choice: Choice | None, goes: str) -> str:
    if choice is None:
        return ""
    where = f" from node {choice.node_id}" if choice.node_id else ""
    many = len(choice.victims)
    verb = goes if many == 1 or goes != "goes" else "go"
    return (
        f"{count(many, 'allocation')} {verb}{where}"
        if many
        else f"capacity on node {choice.node_id}"
    )


def difference(live: Choice | None, shadow: Choice | None) -> Difference:
    """Return the difference between a live choice and a choice of the shadow. At least one of the two choices must be given."""
    if live is None:
        assert shadow is not None, "nobody decided anything"
        return Difference.ONLY_SHADOW
    if shadow is None:
        return Difference.ONLY_LIVE
    if live.node_id != shadow.node_id:
        return Difference.OTHER_NODE
    same = {one.key for one in live.victims} == {one.key for one in shadow.victims}
    return Difference.SAME if same else Difference.OTHER_VICTIMS
