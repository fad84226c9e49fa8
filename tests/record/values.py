"""Values for tests: random events of every kind, and invented records of decisions."""

from typing import Any, get_type_hints

from hypothesis import strategies as st

from server.model.asks import (
    AskSpec,
    Constraints,
    GroupPreference,
    HostPort,
    Preferences,
    PreferredTerm,
    Requirement,
    Term,
    Toleration,
)
from server.model.decisions import Decided, DecisionMoved
from server.model.events import ConfigurationApplied, ManagerRegistered
from server.model.quota import (
    Acl,
    ChildTemplate,
    Configuration,
    PartitionSpec,
    PlacementRule,
    PreemptionSettings,
    QueueProperties,
    QueueSpec,
    RuleFilter,
    UserLimit,
)
from server.model.records import (
    Beneficiary,
    DecisionRecord,
    DecisionState,
    Level,
    Shrink,
    ShrinkResult,
    Spared,
    Victim,
)
from server.record.trace import KINDS

START = 1_700_000_000_000
VCORES = (("memory", 1 << 30), ("vcore", 500))

Strategies = st.SearchStrategy[Any]


def whole(kind: type[Any], **more: Strategies) -> Strategies:
    """Return a strategy of values with every field drawn, because `builds` alone does not draw fields with a default."""
    hints = get_type_hints(kind)
    own = {name: st.from_type(hint) for name, hint in hints.items() if name not in more}
    return st.builds(kind, **own, **more)


_PARTS: tuple[type[Any], ...] = (
    *(Requirement, Term, Toleration, HostPort, Constraints),
    *(PreferredTerm, GroupPreference, Preferences, AskSpec),
    *(Acl, UserLimit, QueueProperties, ChildTemplate, RuleFilter),
)
for _part in _PARTS:
    st.register_type_strategy(_part, whole(_part))
SHADOWS = st.dictionaries(
    st.sampled_from(("entitlement", "policies", "expiry_ms", "observe_only", "job_delete")),
    st.sampled_from(("proportional", ("job", "in-queue"), 7, True, None)),
)
LEAVES = whole(QueueSpec, children=st.just(()))
QUEUES = whole(QueueSpec, children=st.lists(LEAVES, max_size=2).map(tuple))
RULES = whole(PlacementRule, parent=st.none() | whole(PlacementRule, parent=st.none()))
PARTITIONS = whole(
    PartitionSpec,
    root=QUEUES,
    rules=st.lists(RULES, max_size=2).map(tuple),
    preemption=whole(PreemptionSettings, shadow=SHADOWS),
)
CONFIGURATIONS = whole(Configuration, partitions=st.lists(PARTITIONS, max_size=2).map(tuple))


def events(kind: type[Any]) -> Strategies:
    """Return a strategy of events of one kind, with values of all sorts in every field."""
    if kind is ManagerRegistered:
        return whole(kind, configuration=st.none() | CONFIGURATIONS)
    if kind is ConfigurationApplied:
        return whole(kind, configuration=CONFIGURATIONS)
    return whole(kind)


ANY_EVENT = st.one_of(*map(events, KINDS.values()))


def victim(number: int, because: str = "Q11: lowest priority first") -> Victim:
    """Return the victim with this number."""
    return Victim(
        f"pod-{number}",
        "app",
        "root.low",
        f"n{number}",
        VCORES,
        0,
        opted_out=False,
        originator=False,
        because=because,
    )


def record(number: int, victims: int = 2, at_ms: int = START) -> DecisionRecord:
    """Return the record of a claim with this number of victims."""
    return DecisionRecord(
        f"g-{at_ms:x}-{number}",
        "guaranteed",
        "default",
        at_ms,
        DecisionState.PLANNED,
        f"ask-{number} takes the place of {victims} pods",
        (Beneficiary(f"ask-{number}", "app-1", "root.high", "n1", VCORES, 5),),
        tuple(victim(one) for one in range(victims)),
        (Spared("G7", "root.mid", 3, ("pod-8", "pod-9")),),
        (Level("root.high", "deciding", "vcore", 4_000, None, 500),),
        expires_ms=at_ms + 600_000,
    )


def shrink(number: int) -> DecisionRecord:
    """Return the record of a quota run."""
    ran = Shrink(
        "root.low",
        {"vcore": 900},
        {"vcore": 500},
        {"vcore": 400},
        ShrinkResult.SHORTFALL,
        7,
        "Q9",
        "root",
    )
    return DecisionRecord(
        f"q-1-{number}", "quota", "default", START, DecisionState.ORDERED, "a run", shrink=ran
    )


def decided(number: int, victims: int = 2) -> Decided:
    """Return the decision to log with this number."""
    return Decided("rm", record(number, victims))


def moved(number: int, state: DecisionState = DecisionState.CONFIRMED) -> DecisionMoved:
    """Return the log entry for a decision's next state."""
    return DecisionMoved("rm", "default", f"g-{START:x}-{number}", state, START + number)
