"""Bad input about preemption: each case has one defined answer, and input without effect leaves the state unchanged.

Invalid configurations are tested in tests/config, and the limits of the wire in tests/rpc.
"""

from collections.abc import Iterable
from typing import Any, Final

import pytest

from server.config import load
from server.core.core import Core
from server.core.queries.known_decisions import decision, decisions
from server.core.queries.verdicts import verdict
from server.model.asks import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    AskSpec,
    Constraints,
    Protection,
    ReleaseMark,
)
from server.model.decisions import (
    AskRejected,
    Decision,
    DecisionMoved,
    Noted,
    Placed,
    Released,
    Termination,
)
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    ApplicationRemoved,
    AskAdded,
    ConfigurationApplied,
    DisruptionsAllowed,
    Event,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    ReleaseRequested,
    SyncCompleted,
    VictimVetoed,
)
from server.model.quota import Configuration
from server.model.reasons import Code
from server.model.records import DecisionState
from server.snapshot.columns import FIRM, OPTED_OUT, ORIGINATOR, PLACEHOLDER, UNTOUCHABLE, flags_of

NOW: Final = 1_800_000_000_000
LONG_AGO: Final = NOW - 3_600_000
GONE: Final = Termination.PREEMPTED_BY_SCHEDULER
EXPIRY_MS: Final = 60_000
QUEUES: Final = """\
partitions:
  - name: default
    preemption: {quotapreemptionenabled: true, expiry: 60s, backoff: 1s, policies: [POLICIES]}
    queues:
      - name: root
        submitacl: '*'
        properties: {quota.preemption.delay: 1s}
        queues:
          - {name: a, resources: {guaranteed: {memory: 100}}}
          - {name: b, resources: {max: {memory: MOST}}}
"""


def configuration(most: int = 1_000, policies: str = "required-node, guaranteed") -> Configuration:
    """Queue a is owed 100, queue b may have so much."""
    found, problems = load(QUEUES.replace("MOST", str(most)).replace("POLICIES", policies))
    assert found is not None, problems
    return found


def spec(memory: int = 10, **more: Any) -> AskSpec:
    return AskSpec((("memory", memory),), **more)


class Stage:
    """A core with nodes n1 and n2 of 20 that pods y1 to y4 of queue b fill; ``said`` has all that it decided."""

    def __init__(self, policies: str = "required-node, guaranteed", pods: int = 4) -> None:
        self.core = Core(configuration(policies=policies))
        self.now = NOW
        self.said: list[Decision] = []
        self.do(ManagerRegistered("rm"), ManagerRegistered("other"))
        self.do(*(NodeAdded("rm", name, (("memory", 20),)) for name in ("n1", "n2")))
        self.do(ApplicationAdded("rm", "x", "root.a"), ApplicationAdded("rm", "y", "root.b"))
        self.do(*(self.running(f"y{number}") for number in range(1, pods + 1)))

    def running(
        self, key: str, node: str = "", mark: ReleaseMark | None = None, **more: Any
    ) -> AllocationAdded:
        """Return a pod of 10 in queue b: y1 and y2 are on n1, the others on n2; the later the younger."""
        found = node or ("n1" if key in {"y1", "y2"} else "n2")
        created = LONG_AGO + int(key.removeprefix("y")) if key != "new" else LONG_AGO
        return AllocationAdded(
            "rm", key, "y", found, spec(**more), created_ms=created, releasing=mark
        )

    def asks(self, key: str = "x1", **more: Any) -> AskAdded:
        """Return an ask of queue a that waits for an hour."""
        return AskAdded("rm", key, "x", spec(**more), created_ms=LONG_AGO)

    def do(self, *events: Event) -> list[Decision]:
        """Handle events and return what is decided at once, without a tick."""
        found = [one for event in events for one in self.core.handle(event, self.now)]
        self.core.validate()
        self.said += found
        return found

    def tick(self, wait_ms: int = 0) -> list[Decision]:
        """Everything that is decided so much later."""
        self.now += wait_ms
        found: list[Decision] = []
        more = True
        while more:
            tick = self.core.tick(self.now)
            found += tick.decisions
            more = tick.more
        self.core.validate()
        self.said += found
        return found

    def confirm(self, key: str, application: str = "y") -> list[Decision]:
        """Report that the pod is gone."""
        return self.do(ReleaseRequested("rm", application, key, termination=GONE))

    def claim(self) -> str:
        """Add an ask that claims, for which one pod of n1 is evicted, and return the decision's id."""
        self.do(self.asks())
        assert goes(self.tick()) == ["y2"]
        return self.open()[0]

    def open(self) -> list[str]:
        """Return the ids of all open decisions."""
        return [one.decision_id for one in decisions(self.core, open_only=True)]

    def state(self, decision_id: str) -> DecisionState:
        """How far a decision is."""
        found = decision(self.core, decision_id)
        assert found is not None
        return found.state

    def restarted(self, *allocations: AllocationAdded, asks: Iterable[AskAdded] = ()) -> None:
        """Register the manager once more and report everything; y1 to y4 run unless told otherwise."""
        marked = {one.key for one in allocations}
        self.do(ManagerRegistered("rm", explicit_sync=True, forget=True))
        self.do(
            *(NodeAdded("rm", name, (("memory", 20),), schedulable=False) for name in ("n1", "n2"))
        )
        self.do(ApplicationAdded("rm", "x", "root.a"), ApplicationAdded("rm", "y", "root.b"))
        self.do(*(self.running(key) for key in ("y1", "y2", "y3", "y4") if key not in marked))
        self.do(*allocations, *asks)
        self.do(NodeEnabled("rm", "n1"), NodeEnabled("rm", "n2"))


def goes(found: Iterable[Decision]) -> list[str]:
    """Return the keys of the pods that were ordered to end."""
    return [one.key for one in found if isinstance(one, Released) and one.termination is GONE]


def placed(found: Iterable[Decision]) -> list[tuple[str, str]]:
    return [(one.key, one.node_id) for one in found if isinstance(one, Placed)]


def noted(found: Iterable[Decision]) -> list[Code]:
    return [one.code for one in found if isinstance(one, Noted)]


def ends(found: Iterable[Decision]) -> list[DecisionState]:
    """Return the final states of decisions, in order."""
    return [one.state for one in found if isinstance(one, DecisionMoved) and not one.key]


@pytest.fixture
def stage() -> Stage:
    return Stage()


# Asks whose flags contradict each other -------------------------------------------------------------------------

FLAGS: Final = [
    (
        "a placeholder is never an originator",
        {"placeholder": True, "originator": True},
        PLACEHOLDER,
    ),
    ("an originator", {"originator": True}, ORIGINATOR),
    (
        "prefer-not may be preempted as a last resort",
        {"protection": Protection.PREFER_NOT},
        OPTED_OUT,
    ),
    ("a normal one that opted out", {"allow_preempt_self": False}, OPTED_OUT),
    ("firm, though it may be preempted", {"protection": Protection.FIRM}, FIRM),
    (
        "firm and opted out",
        {"protection": Protection.FIRM, "allow_preempt_self": False},
        FIRM | OPTED_OUT,
    ),
    (
        "untouchable, though it may be preempted",
        {"protection": Protection.UNTOUCHABLE},
        UNTOUCHABLE,
    ),
    ("members of no job", {"min_members": 3}, 0),
    ("a job of nobody", {"gang_key": "job"}, 0),
    ("a job of one", {"gang_key": "job", "min_members": 1}, 0),
]


@pytest.mark.parametrize(("title", "more", "flags"), FLAGS, ids=[title for title, *_ in FLAGS])
def test_the_flags_of_an_allocation_are_what_its_ask_means(
    title: str, more: dict[str, Any], flags: int
) -> None:
    assert flags_of(spec(**more, lendable=True)) == flags, title


def test_a_placeholder_that_calls_itself_originator_goes_before_an_originator() -> None:
    stage = Stage(pods=0)
    stage.do(
        # A placeholder as old as the others would have timed out.
        stage.running("y1", placeholder=True, originator=True)._replace(created_ms=stage.now),
        stage.running("y2", originator=True),
        stage.running("y3", protection=Protection.UNTOUCHABLE),
        stage.running("y4", protection=Protection.UNTOUCHABLE),
        stage.asks(),
    )
    assert goes(stage.tick()) == ["y1"]
    record = decisions(stage.core)[0]
    assert [one.originator for one in record.victims] == [False]


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(required_node="n1", excluded_nodes=("n1",)),
        Constraints(required_node="n1", allowed_nodes=("n2",)),
        Constraints(required_node="n1", node_name="n2"),
        Constraints(required_node="n1", node_selector=(("zone", "nowhere"),)),
        Constraints(required_node="gone"),
    ],
    ids=["excluded", "not allowed", "named otherwise", "not selected", "unknown"],
)
def test_nobody_goes_for_an_ask_whose_required_node_cannot_take_it(
    stage: Stage, constraints: Constraints
) -> None:
    stage.do(stage.asks(constraints=constraints))
    assert goes(stage.tick() + stage.tick(120_000)) == []
    assert stage.open() == []
    stage.confirm("y1")
    assert placed(stage.tick(1_000)) == []


@pytest.mark.parametrize(
    "more", [{"allow_preempt_other": False}, {"rm_check": True}], ids=["never", "rm-check"]
)
def test_nobody_goes_for_an_ask_that_may_not_preempt_though_it_requires_its_node(
    stage: Stage, more: dict[str, Any]
) -> None:
    stage.do(stage.asks(constraints=Constraints(required_node="n1"), **more))
    assert goes(stage.tick() + stage.tick(120_000)) == []


def test_an_ask_that_requires_its_node_makes_no_claim_under_a_guarantee() -> None:
    stage = Stage("guaranteed")
    stage.do(stage.asks(constraints=Constraints(required_node="n1")))
    assert goes(stage.tick()) == []


@pytest.mark.parametrize(
    "more",
    [{"min_members": 3}, {"gang_key": "job", "min_members": 1}],
    ids=["members without a key", "a job of one"],
)
def test_an_ask_of_no_real_job_claims_like_any_other(stage: Stage, more: dict[str, Any]) -> None:
    stage.do(stage.asks(**more))
    assert goes(stage.tick()) == ["y2"]
    stage.confirm("y2")
    assert placed(stage.tick()) == [("x1", "n1")]


def test_an_ask_with_a_job_key_alone_claims_when_no_further_member_came(stage: Stage) -> None:
    stage.do(stage.asks(gang_key="job"))
    assert goes(stage.tick() + stage.tick(1_999)) == []
    assert goes(stage.tick(1)) == ["y2"]
    stage.confirm("y2")
    assert placed(stage.tick()) == [("x1", "n1")]


def test_nobody_goes_for_members_of_a_job_one_by_one(stage: Stage) -> None:
    stage.do(*(stage.asks(key, gang_key="job", min_members=2) for key in ("x1", "x2")))
    assert goes(stage.tick() + stage.tick(120_000)) == []


@pytest.mark.parametrize(
    ("policies", "victims"),
    [("guaranteed", ["y2"]), ("guaranteed, job", [])],
    ids=["no jobs are planned for", "jobs are planned for"],
)
def test_firm_counts_where_jobs_are_planned_for_whatever_else_a_pod_allows(
    policies: str, victims: list[str]
) -> None:
    stage = Stage(policies, pods=0)
    keys = ("y1", "y2", "y3", "y4")
    stage.do(*(stage.running(key, protection=Protection.FIRM) for key in keys), stage.asks())
    assert goes(stage.tick()) == victims


def test_untouchable_counts_whatever_else_a_pod_allows() -> None:
    stage = Stage(pods=0)
    keys = ("y1", "y2", "y3", "y4")
    stage.do(*(stage.running(key, protection=Protection.UNTOUCHABLE) for key in keys))
    stage.do(stage.asks(), stage.asks("x2", constraints=Constraints(required_node="n1")))
    assert goes(stage.tick()) == []


@pytest.mark.parametrize("priority", [PRIORITY_MIN - 1, PRIORITY_MAX + 1])
def test_a_priority_that_is_no_int32_is_rejected(stage: Stage, priority: int) -> None:
    before = stage.core.digest()
    answers = stage.do(stage.asks(priority=priority), stage.running("new", priority=priority))
    answers += stage.do(stage.running("y1", priority=priority))
    assert [type(one) for one in answers] == [AskRejected] * 3
    assert stage.core.digest() == before


@pytest.mark.parametrize("priority", [PRIORITY_MIN, PRIORITY_MAX])
def test_the_outermost_priorities_claim_and_are_claimed_from(priority: int) -> None:
    stage = Stage(pods=0)
    stage.do(*(stage.running(key, priority=PRIORITY_MIN) for key in ("y1", "y2")))
    stage.do(*(stage.running(key, priority=PRIORITY_MAX) for key in ("y3", "y4")))
    stage.do(stage.asks(priority=priority))
    assert goes(stage.tick()) == ["y2"]


# Releases and confirmations -------------------------------------------------------------------------------------


def test_a_confirmation_of_what_nobody_ordered_ends_the_pod_and_nothing_else(stage: Stage) -> None:
    """The pod is gone whatever ended it; its manager is told that the core counts it as gone (the echo of a release)."""
    answers = stage.confirm("y1")
    released = [one for one in answers if isinstance(one, Released)]
    assert [(one.key, one.termination) for one in released] == [("y1", Termination.STOPPED_BY_RM)]
    assert ends(answers) == []
    assert "y1" not in stage.core.state.partitions["default"].asks


@pytest.mark.parametrize(
    "event",
    [
        ReleaseRequested("rm", "y", "never", termination=GONE),
        ReleaseRequested("rm", "x", "y1", termination=GONE),
        ReleaseRequested("rm", "nobody", "y1", termination=GONE),
        ReleaseRequested("other", "y", "y1", termination=GONE),
        ReleaseRequested("stranger", "y", "y1", termination=GONE),
        ReleaseRequested("rm", "y", "y1", "nowhere", termination=GONE),
    ],
    ids=[
        "unknown key",
        "another application",
        "no application",
        "another manager",
        "no manager",
        "no partition",
    ],
)
def test_a_confirmation_that_means_nothing_changes_nothing(
    stage: Stage, event: ReleaseRequested
) -> None:
    stage.claim()
    before = stage.core.digest()
    assert noted(stage.do(event)) == [Code.RELEASE_UNKNOWN]
    assert stage.core.digest() == before


def test_a_second_confirmation_changes_nothing(stage: Stage) -> None:
    decision_id = stage.claim()
    assert ends(stage.confirm("y2")) == [DecisionState.CONFIRMED]
    before = stage.core.digest()
    assert noted(stage.confirm("y2")) == [Code.RELEASE_UNKNOWN]
    assert stage.core.digest() == before
    assert placed(stage.tick()) == [("x1", "n1")]
    assert stage.state(decision_id) is DecisionState.FULFILLED


def test_a_victim_that_fails_to_bind_is_gone_for_its_decision_and_waits_again(stage: Stage) -> None:
    stage.claim()
    failed = Termination.SCHEDULING_FAILED_ON_RM
    stage.do(ReleaseRequested("rm", "y", "y2", termination=failed))
    assert placed(stage.tick()) == [("x1", "n1")]
    assert stage.core.state.partitions["default"].asks["y2"].node is None


def test_a_release_that_is_never_confirmed_is_told_again_when_its_decision_expires(
    stage: Stage,
) -> None:
    decision_id = stage.claim()
    assert noted(stage.tick(EXPIRY_MS - 1)) == []
    found = stage.tick(1)
    assert noted(found).count(Code.RELEASE_OVERDUE) == 1
    assert goes(found) == ["y2"]
    assert stage.state(decision_id) is DecisionState.EXPIRED
    (again,) = [one for one in found if isinstance(one, Released)]
    assert again.decision_id == decision_id
    assert goes(stage.tick(20 * EXPIRY_MS)) == ["y2"], "it is told at each expiry, and nobody else"
    stage.confirm("y2")
    assert placed(stage.tick(5_000)) == [("x1", "n1")]


@pytest.mark.parametrize("late", ["beneficiary", "victim"])
def test_a_decision_that_expired_is_no_more_what_anybody_says_of_it(
    stage: Stage, late: str
) -> None:
    """The ask goes away, or the victim is confirmed, after the decision ended."""
    decision_id = stage.claim()
    stage.tick(EXPIRY_MS)
    if late == "victim":
        stage.confirm("y2")
    else:
        stage.do(ReleaseRequested("rm", "x", "x1"))
    stage.tick()
    assert stage.state(decision_id) is DecisionState.EXPIRED


# Victims and nodes that vanish in between -----------------------------------------------------------------------


def daemon(stage: Stage) -> str:
    """Add a pod that belongs to n1, for which one pod of n1 is evicted, and return the decision's id."""
    stage.do(stage.asks("d1", constraints=Constraints(required_node="n1")))
    assert goes(stage.tick()) == ["y2"]
    return stage.open()[0]


def shrink(stage: Stage) -> str:
    """Queue b is over a maximum of 25: two pods go."""
    stage.do(ConfigurationApplied(configuration(25), "lowered"))
    assert goes(stage.tick(1_000)) == ["y4", "y3"] or len(stage.open()) == 1
    return stage.open()[0]


def test_a_victim_of_a_required_node_that_ends_by_itself_is_gone(stage: Stage) -> None:
    decision_id = daemon(stage)
    stage.do(ReleaseRequested("rm", "y", "y2"))
    assert placed(stage.tick()) == [("d1", "n1")]
    assert stage.state(decision_id) is DecisionState.FULFILLED


@pytest.mark.parametrize("why", ["victim", "beneficiary", "node", "cordon"])
def test_a_required_nodes_decision_ends_with_what_it_was_for(stage: Stage, why: str) -> None:
    decision_id = daemon(stage)
    ending: dict[str, Event] = {
        "victim": ApplicationRemoved("rm", "y"),
        "beneficiary": ReleaseRequested("rm", "x", "d1"),
        "node": NodeRemoved("rm", "n1"),
        "cordon": NodeDrained("rm", "n1"),
    }
    stage.do(ending[why])
    stage.tick()
    if why == "cordon":  # G11: a cordon does not keep a pod from the node that it requires
        stage.confirm("y2")
        assert placed(stage.tick()) == [("d1", "n1")]
    expected = DecisionState.ABORTED if why in {"beneficiary", "node"} else DecisionState.FULFILLED
    assert stage.state(decision_id) is expected
    assert stage.open() == []


def test_a_quota_run_ends_when_its_last_victim_is_gone_in_whatever_way(stage: Stage) -> None:
    decision_id = shrink(stage)
    stage.do(NodeRemoved("rm", "n2"))
    stage.do(ReleaseRequested("rm", "y", "y1"), ReleaseRequested("rm", "y", "y2"))
    assert stage.state(decision_id) is DecisionState.FULFILLED
    assert goes(stage.tick(120_000)) == []


def test_a_quota_run_whose_releases_are_never_confirmed_ends_and_tells_them_again(
    stage: Stage,
) -> None:
    decision_id = shrink(stage)
    victims = sorted(goes(stage.said))
    found = stage.tick(EXPIRY_MS)
    assert sorted(goes(found)) == victims
    assert noted(found).count(Code.RELEASE_OVERDUE) == len(victims)
    assert stage.state(decision_id) is DecisionState.EXPIRED
    assert goes(stage.tick(20 * EXPIRY_MS)) == []


# Vetoes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        VictimVetoed("rm", "g-1-1", "y2", "no"),
        VictimVetoed("rm", "ID", "nobody", "no"),
        VictimVetoed("rm", "ID", "y1", "no"),
        VictimVetoed("rm", "ID", "x1", "no"),
        VictimVetoed("rm", "ID", "", "no"),
        VictimVetoed("other", "ID", "y2", "no"),
        VictimVetoed("stranger", "ID", "y2", "no"),
    ],
    ids=[
        "unknown decision",
        "unknown key",
        "no victim",
        "the beneficiary",
        "no key",
        "another manager",
        "no manager",
    ],
)
def test_a_veto_that_means_nothing_changes_nothing(stage: Stage, event: VictimVetoed) -> None:
    decision_id = stage.claim()
    before = stage.core.digest()
    meant = event._replace(decision_id=event.decision_id.replace("ID", decision_id))
    assert noted(stage.do(meant)) == [Code.RELEASE_UNKNOWN]
    assert stage.core.digest() == before
    stage.confirm("y2")
    assert placed(stage.tick()) == [("x1", "n1")]


def test_a_second_veto_of_the_same_victim_changes_nothing(stage: Stage) -> None:
    decision_id = stage.claim()
    stage.do(VictimVetoed("rm", decision_id, "y2", "no"))
    assert goes(stage.tick()) == ["y1"]
    before = stage.core.digest()
    stage.do(VictimVetoed("rm", decision_id, "y2", "no"))
    assert stage.core.digest() == before


def test_a_veto_of_everybody_ends_the_decision_and_nobody_has_to_go(stage: Stage) -> None:
    decision_id = stage.claim()
    asked: list[str] = []
    while stage.open():
        (key,) = [
            one.key for one in stage.core.state.partitions["default"].asks.values() if one.releasing
        ]
        asked.append(key)
        stage.do(VictimVetoed("rm", decision_id, key, "no"))
        stage.tick()
    assert sorted(asked) == ["y1", "y2", "y3", "y4"]
    assert stage.state(decision_id) is DecisionState.ABORTED


def test_a_budget_of_less_than_nobody_is_a_budget_of_nobody(stage: Stage) -> None:
    stage.do(DisruptionsAllowed("rm", "g/b", -5))
    assert stage.core.managers["rm"].disruptions_allowed == {"g/b": 0}
    before = stage.core.digest()
    assert noted(stage.do(DisruptionsAllowed("stranger", "g/b", 1))) == [Code.CONFIGURATION_REFUSED]
    assert stage.core.digest() == before


# Marks ----------------------------------------------------------------------------------------------------------


def mark(decision_id: str = "g-1-1", beneficiary: str = "x1", node: str = "n1") -> ReleaseMark:
    return ReleaseMark(GONE, decision_id, beneficiary, node)


@pytest.mark.parametrize(
    "decision_id", ["nonsense", "-", "z-1-1", "r7", "g", "0", "j-1-1", "i-1-1"]
)
def test_a_mark_whose_decision_says_no_policy_that_we_know_is_as_good_as_a_claims(
    stage: Stage, decision_id: str
) -> None:
    stage.restarted(stage.running("y2", mark=mark(decision_id)), asks=[stage.asks()])
    stage.do(SyncCompleted("rm"))
    assert goes(stage.tick() + stage.tick(5_000)) == []
    assert stage.state(decision_id) is DecisionState.ORDERED
    stage.confirm("y2")
    assert placed(stage.tick()) == [("x1", "n1")]
    assert stage.state(decision_id) is DecisionState.FULFILLED


@pytest.mark.parametrize(
    "garbage",
    [
        mark(beneficiary="nobody"),
        mark(beneficiary="y1"),
        mark(beneficiary="y2"),
        mark(node="gone"),
        mark(node=""),
    ],
    ids=["unknown", "one that runs", "the victim itself", "unknown node", "no node"],
)
def test_a_mark_for_nobody_or_nowhere_ends_at_once_and_its_pod_dies(
    stage: Stage, garbage: ReleaseMark
) -> None:
    stage.restarted(stage.running("y2", mark=garbage))
    stage.do(SyncCompleted("rm"))
    stage.tick()
    assert stage.open() == []
    assert not stage.core.state.partitions["default"].decisions.pledges
    stage.do(stage.asks())
    assert goes(stage.tick()) == [], "what y2 leaves is enough"
    stage.confirm("y2")
    assert placed(stage.tick()) == [("x1", "n1")]


@pytest.mark.parametrize("decision_id", ["g-1-1", "n-1-1", "nonsense"])
def test_a_decision_for_nobody_that_is_no_quota_run_ends_at_once(
    stage: Stage, decision_id: str
) -> None:
    stage.restarted(stage.running("y2", mark=mark(decision_id, "", "")))
    stage.do(SyncCompleted("rm"))
    stage.tick()
    assert stage.state(decision_id) is DecisionState.ABORTED
    stage.do(VictimVetoed("rm", decision_id, "y2", "it stays"))
    assert goes(stage.tick()) == []
    assert not stage.core.state.partitions["default"].asks["y2"].releasing


@pytest.mark.parametrize("beneficiary", ["", "x1", "gone"])
def test_a_quota_run_gives_capacity_to_nobody_whatever_its_mark_says(
    stage: Stage, beneficiary: str
) -> None:
    stage.restarted(
        stage.running("y2", mark=mark("q-1-1", beneficiary)), asks=[stage.asks(memory=30)]
    )
    stage.do(SyncCompleted("rm"))
    stage.tick()
    assert stage.open() == ["q-1-1"]
    assert not stage.core.state.partitions["default"].decisions.pledges
    stage.confirm("y2")
    assert stage.state("q-1-1") is DecisionState.FULFILLED


def test_a_veto_elsewhere_takes_nobody_more_for_an_ask_of_whose_victims_only_some_are_marked(
    stage: Stage,
) -> None:
    """The core was lost while its orders went out: one of two victims heard of it (invariant 19)."""
    stage.restarted(
        stage.running("y2", mark=mark()),
        stage.running("y4", mark=mark("g-1-2", "x2", "n2")),
        asks=[stage.asks(memory=20), stage.asks("x2")],
    )
    stage.do(SyncCompleted("rm"))
    assert goes(stage.tick()) == []
    stage.do(VictimVetoed("rm", "g-1-2", "y4", "it stays"))
    found = [one for one in stage.tick() if isinstance(one, Released) and one.beneficiary == "x1"]
    assert goes(found) == [], "y2 is dying for x1 still"


def test_an_ask_of_whose_victims_only_some_are_marked_is_planned_for_anew_at_its_expiry(
    stage: Stage,
) -> None:
    stage.restarted(stage.running("y2", mark=mark()), asks=[stage.asks(memory=20)])
    stage.do(SyncCompleted("rm"))
    stage.confirm("y2")
    assert goes(stage.tick() + stage.tick(EXPIRY_MS - 1)) == []
    assert goes(stage.tick(1)) == ["y1"]
    assert stage.state("g-1-1") is DecisionState.EXPIRED
    stage.confirm("y1")
    assert placed(stage.tick()) == [("x1", "n1")]


def test_a_mark_for_one_member_of_a_job_places_no_part_of_the_job(stage: Stage) -> None:
    members = [stage.asks(key, gang_key="job", min_members=2) for key in ("x1", "x2")]
    stage.restarted(stage.running("y2", mark=mark()), asks=members)
    stage.do(SyncCompleted("rm"))
    assert stage.state("g-1-1") is DecisionState.ABORTED
    stage.confirm("y2")
    assert placed(stage.tick()) == []
    stage.confirm("y1")
    assert placed(stage.tick()) == [("x1", "n1"), ("x2", "n1")]


def test_a_quota_run_that_was_rebuilt_ends_when_its_victim_is_vetoed(stage: Stage) -> None:
    stage.restarted(stage.running("y2", mark=mark("q-1-1", "", "")))
    stage.do(SyncCompleted("rm"))
    stage.do(VictimVetoed("rm", "q-1-1", "y2", "it stays"))
    assert goes(stage.tick()) == [], "b is within its maximum"
    assert stage.open() == []


def test_marks_of_the_dead_are_forgotten_where_nobody_declares_an_end_of_the_sync(
    stage: Stage,
) -> None:
    stage.do(ManagerRegistered("rm"), NodeAdded("rm", "n1", (("memory", 20),)))
    stage.do(ApplicationAdded("rm", "y", "root.b"))
    stage.do(stage.running("y2", mark=mark(beneficiary="gone")))
    stage.tick()
    assert list(stage.core.state.partitions["default"].decisions.marks) == ["g-1-1"]
    stage.confirm("y2")
    stage.tick()
    assert not stage.core.state.partitions["default"].decisions.marks


def test_of_marks_of_one_decision_that_name_different_nodes_the_first_counts(stage: Stage) -> None:
    stage.restarted(
        stage.running("y2", mark=mark(node="n1")),
        stage.running("y3", mark=mark(node="n2")),
        asks=[stage.asks()],
    )
    stage.do(SyncCompleted("rm"))
    assert goes(stage.tick()) == []
    record = decision(stage.core, "g-1-1")
    assert record is not None
    assert [one.node_id for one in record.beneficiaries] == ["n1"]
    assert sorted(one.key for one in record.victims) == ["y2", "y3"]
    stage.confirm("y3")
    stage.confirm("y2")
    assert placed(stage.tick()) == [("x1", "n1")]
    assert stage.open() == []


def test_of_several_nodes_the_one_counts_where_the_victims_free_capacity(stage: Stage) -> None:
    """A decision that was replanned after a veto leaves marks of the node that it first had in mind."""
    stage.restarted(
        stage.running("y2", mark=mark(node="n1")),
        stage.running("y3", mark=mark(node="n2")),
        stage.running("y4", mark=mark(node="n2")),
        asks=[stage.asks(memory=20)],
    )
    stage.do(SyncCompleted("rm"))
    assert goes(stage.tick()) == []
    record = decision(stage.core, "g-1-1")
    assert record is not None
    assert [one.node_id for one in record.beneficiaries] == ["n2"]
    stage.confirm("y3")
    stage.confirm("y4")
    assert placed(stage.tick()) == [("x1", "n2")]


def test_of_two_decisions_for_one_ask_the_first_holds_capacity_and_the_other_ends(
    stage: Stage,
) -> None:
    stage.restarted(
        stage.running("y2", mark=mark("g-1-1")),
        stage.running("y3", mark=mark("g-1-2", node="n2")),
        asks=[stage.asks()],
    )
    stage.do(SyncCompleted("rm"))
    assert goes(stage.tick()) == []
    assert stage.open() == ["g-1-1"]
    assert stage.state("g-1-2") is DecisionState.ABORTED


def test_a_mark_without_a_decision_only_says_that_the_pod_is_dying(stage: Stage) -> None:
    stage.restarted(stage.running("y2", mark=ReleaseMark(Termination.STOPPED_BY_RM, "", "", "")))
    stage.do(stage.asks(), SyncCompleted("rm"))
    assert goes(stage.tick()) == []
    stage.confirm("y2")
    assert placed(stage.tick()) == [("x1", "n1")]


def test_a_required_nodes_mark_for_an_ask_that_does_not_require_it_closes_the_node_to_nobody(
    stage: Stage,
) -> None:
    stage.restarted(stage.running("y2", mark=mark("n-1-1")), asks=[stage.asks()])
    stage.do(SyncCompleted("rm"))
    assert goes(stage.tick()) == []
    assert stage.core.state.partitions["default"].index.nodes["n1"].holds == 0
    stage.confirm("y2")
    assert placed(stage.tick()) == [("x1", "n1")]


@pytest.mark.parametrize("why", ["cordoned", "too small", "not allowed"])
def test_a_mark_whose_node_cannot_take_its_ask_any_more_holds_nothing(
    stage: Stage, why: str
) -> None:
    """A mark holds nothing on such a node, as after a change of the node under a decision (G10)."""
    more: dict[str, Any] = {}
    if why == "too small":
        more["memory"] = 21
    if why == "not allowed":
        more["constraints"] = Constraints(excluded_nodes=("n1",))
    stage.restarted(stage.running("y2", mark=mark()), asks=[stage.asks(**more)])
    if why == "cordoned":
        stage.do(NodeDrained("rm", "n1"))
    stage.do(SyncCompleted("rm"))
    assert stage.state("g-1-1") is DecisionState.ABORTED
    assert not stage.core.state.partitions["default"].decisions.pledges


def test_marks_come_before_nodes_are_enabled_where_nobody_declares_an_end_of_the_sync(
    stage: Stage,
) -> None:
    """The published order: nodes, pods, asks, and only then are nodes enabled; nothing is given up before."""
    stage.do(ManagerRegistered("rm"))
    stage.do(NodeAdded("rm", "n1", (("memory", 20),), schedulable=False))
    stage.do(ApplicationAdded("rm", "x", "root.a"), ApplicationAdded("rm", "y", "root.b"))
    stage.do(stage.running("y1"), stage.running("y2", mark=mark()), stage.asks())
    assert goes(stage.tick()) == []
    assert stage.open() == ["g-1-1"]
    stage.do(NodeEnabled("rm", "n1"))
    assert goes(stage.tick()) == []
    stage.confirm("y2")
    assert placed(stage.tick()) == [("x1", "n1")]


@pytest.mark.parametrize("why", ["expired", "aborted"])
def test_a_dying_pod_that_is_told_again_with_its_mark_does_not_open_its_decision_again(
    stage: Stage, why: str
) -> None:
    """A manager sends an allocation again when anything of it changes, also of one that has long been dying."""
    decision_id = stage.claim()
    if why == "expired":
        stage.tick(EXPIRY_MS)
    else:
        stage.do(NodeDrained("rm", "n1"))
    ended = stage.state(decision_id)
    stage.do(stage.running("y2", mark=mark(decision_id), disruption_groups=("g/new",)))
    stage.tick()
    assert stage.state(decision_id) is ended
    assert not stage.core.state.partitions["default"].decisions.marks


def test_a_mark_of_a_decision_that_is_open_changes_nothing(stage: Stage) -> None:
    decision_id = stage.claim()
    running = stage.core.state.partitions["default"].asks["y2"]
    before = stage.core.digest()
    stage.do(
        AllocationAdded(
            "rm", "y2", "y", "n1", running.spec, releasing=mark(decision_id, "y1", "n2")
        )
    )
    assert stage.core.digest() == before
    stage.confirm("y2")
    assert placed(stage.tick()) == [("x1", "n1")]


# What cannot be helped ------------------------------------------------------------------------------------------


def test_who_cannot_be_helped_hears_why_once(stage: Stage) -> None:
    stage.do(stage.asks(memory=50))
    found = stage.tick() + stage.tick(120_000) + stage.tick(120_000)
    assert noted(found).count(Code.PREEMPTION_REFUSED) == 1
    told = verdict(stage.core, "x1", stage.now)
    assert told is not None
    assert told.law == "no-node"
