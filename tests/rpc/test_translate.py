"""Wire messages to events, case by case: both versions of the interface, and every field that can be wrong."""

from typing import Any

import pytest

from server.model.asks import (
    NO_PREFERENCES,
    UNCONSTRAINED,
    AskSpec,
    Constraints,
    Generation,
    GroupPreference,
    HostPort,
    Operator,
    Preferences,
    PreferredTerm,
    Protection,
    ReleaseMark,
    Requirement,
    Taint,
    Term,
    Toleration,
)
from server.model.decisions import (
    ApplicationRejected,
    ApplicationUpdateRejected,
    AskRejected,
    NodeRejected,
    Noted,
    Released,
    Termination,
)
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    ApplicationRemoved,
    ApplicationRetagged,
    AskAdded,
    DisruptionsAllowed,
    ForeignAdded,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    NodeUpdated,
    PlanChecked,
    ReleaseRequested,
    SyncCompleted,
    VictimVetoed,
)
from server.model.parts import whole
from server.model.reasons import Code
from server.rpc import limits
from server.rpc.translate import answers
from server.rpc.translate.allocations import Batch, Reader
from server.rpc.translate.allocations_fast import AllocationCodec
from server.rpc.translate.applications import application_batch
from server.rpc.translate.nodes import OCCUPIED_KEY, node_batching
from server.rpc.wire_pieces import varint
from si.v1 import si_pb2 as si
from tests.rpc.harness import RM, ask, resource, soft_mark

NodeInfo = si.NodeInfo
UNKNOWN: Any = 77
"""A number that no enumeration has."""


def read(*allocations: si.Allocation, **more: Any) -> Batch:
    message = si.AllocationRequest(rmID=RM, allocations=allocations, **more)
    return whole(AllocationCodec(Reader()).decoding(message.SerializeToString()))


def spec_of(**more: Any) -> AskSpec:
    batch = read(ask("k", **more))
    assert batch.events, batch.refusals
    (event,) = batch.events
    assert isinstance(event, AskAdded)
    return event.spec


def reason_of(batch: Batch) -> str:
    assert not batch.events
    (refusal,) = batch.refusals
    kinds = AskRejected | NodeRejected | ApplicationRejected | ApplicationUpdateRejected
    assert isinstance(refusal, kinds)
    return refusal.reason


def old_ask(**more: Any) -> si.AllocationAsk:
    facts: dict[str, Any] = {"allocationKey": "k", "applicationID": "app", **more}
    return si.AllocationAsk(**{"resourceAsk": resource(vcore=1), **facts})


def read_old(ask_message: si.AllocationAsk) -> Batch:
    return read(asks=[ask_message])


def old_spec(**more: Any) -> AskSpec:
    batch = read_old(old_ask(**more))
    assert batch.events, batch.refusals
    (event,) = batch.events
    assert isinstance(event, AskAdded)
    assert event.generation is Generation.ASK
    return event.spec


# Preemption policy (design 1.1) ---------------------------------------------------------------------------------


def published(allow_self: bool, allow_other: bool) -> bytes:  # noqa: FBT001 - two bits
    return (varint(8) + varint(1) if allow_self else b"") + (
        varint(16) + varint(1) if allow_other else b""
    )


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("other", [False, True])
def test_two_booleans_of_either_published_generation(*, itself: bool, other: bool) -> None:
    policy = si.AllocationPreemptionPolicy(allowPreemptSelf=itself, allowPreemptOther=other)
    assert policy.SerializeToString() == published(itself, other)
    for spec in (
        spec_of(preemptionPolicy=policy),
        old_spec(preemptionPolicy=si.PreemptionPolicy.FromString(published(itself, other))),
    ):
        assert (spec.allow_preempt_self, spec.allow_preempt_other) == (itself, other)


def test_no_policy_means_both() -> None:
    for spec in (spec_of(), old_spec()):
        assert (spec.allow_preempt_self, spec.allow_preempt_other) == (True, True)


@pytest.mark.parametrize(
    ("text", "other"),
    [("", False), ("Never", False), ("PreemptLowerPriority", True), ("Something", True)],
)
def test_the_seeds_text_in_field_two(text: str, *, other: bool) -> None:
    spec = old_spec(preemptionPolicy=si.PreemptionPolicy(schedulerPreemption=text))
    assert (spec.allow_preempt_self, spec.allow_preempt_other) == (False, other)


# Asks -----------------------------------------------------------------------------------------------------------


def test_every_field_of_an_ask() -> None:
    selector = si.NodeSelectorTerm(
        matchExpressions=[
            si.NodeSelectorRequirement(key="zone", operator="In", values=["b", "a"]),
            si.NodeSelectorRequirement(key="cores", operator="Gt", values=["8"]),
        ],
        matchFields=[si.NodeSelectorRequirement(key="metadata.name", operator="In", values=["n1"])],
    )
    spec = spec_of(
        priority=-7,
        taskGroupName="group",
        placeholder=True,
        originator=True,
        constraints=si.NodeConstraints(
            nodeSelector={"b": "2", "a": "1"},
            requiredTerms=[selector],
            tolerations=[si.Toleration(operator="Exists"), si.Toleration(key="gpu", value="x")],
            nodeName="n1",
            hostPorts=[si.HostPort(port=80)],
            allowedNodes=["n2", "n1", "n1"],
            excludedNodes=["n3"],
        ),
        jobKey="job",
        jobMembers=3,
        protection=si.PROTECTION_FIRM,
        disruptionGroups=["z", "y"],
        graceSeconds=30,
        rmCheck=True,
        jobTrigger=si.JOB_TRIGGER_YES,
    )
    assert spec.constraints == Constraints(
        node_selector=(("a", "1"), ("b", "2")),
        required_terms=(
            Term(
                (
                    Requirement("zone", Operator.IN, ("b", "a")),
                    Requirement("cores", Operator.GT, ("8",)),
                ),
                (Requirement("metadata.name", Operator.IN, ("n1",)),),
            ),
        ),
        tolerations=(Toleration(operator="Exists"), Toleration("gpu", "Equal", "x")),
        node_name="n1",
        host_ports=(HostPort(80, "TCP"),),
        allowed_nodes=("n1", "n2"),
        excluded_nodes=("n3",),
    )
    assert (spec.priority, spec.task_group) == (-7, "group")
    assert (spec.placeholder, spec.originator, spec.rm_check) == (True, True, True)
    assert (spec.gang_key, spec.min_members) == ("job", 3)
    assert (spec.protection, spec.disruption_groups) == (Protection.FIRM, ("y", "z"))
    assert (spec.lendable, spec.may_trigger) == (False, True)
    assert spec.grace_ms == 30_000


def test_what_is_not_said_restricts_nothing() -> None:
    assert spec_of(constraints=si.NodeConstraints()).constraints is UNCONSTRAINED
    assert spec_of(preferences=si.NodePreferences()).preferences is NO_PREFERENCES


def test_preferences_are_read_in_both_generations() -> None:
    wanted = si.NodeSelectorRequirement(key="zone", operator="In", values=["a"])
    message = si.NodePreferences(
        terms=[si.PreferredTerm(weight=-5, term=si.NodeSelectorTerm(matchExpressions=[wanted]))],
        groups=[si.GroupPreference(group="web", topologyKey="zone", weight=7)],
    )
    term = Term((Requirement("zone", Operator.IN, ("a",)),))
    expected = Preferences((PreferredTerm(-5, term),), (GroupPreference("web", "zone", 7),))
    assert spec_of(preferences=message).preferences == expected
    assert old_spec(preferences=message).preferences == expected


@pytest.mark.parametrize(
    ("written", "rung", "lendable"),
    [
        (si.PROTECTION_UNSPECIFIED, Protection.NORMAL, None),
        (si.PROTECTION_NORMAL, Protection.NORMAL, True),
        (si.PROTECTION_PREFER_NOT, Protection.PREFER_NOT, None),
        (si.PROTECTION_FIRM, Protection.FIRM, False),
        (si.PROTECTION_UNTOUCHABLE, Protection.UNTOUCHABLE, None),
    ],
)
def test_j2_a_class_is_what_was_written(
    written: si.Protection,
    rung: Protection,
    lendable: bool | None,  # noqa: FBT001
) -> None:
    for spec in (spec_of(protection=written), old_spec(protection=written)):
        assert (spec.protection, spec.lendable) == (rung, lendable)


@pytest.mark.parametrize(
    ("written", "may"),
    [
        (si.JOB_TRIGGER_UNSPECIFIED, None),
        (si.JOB_TRIGGER_YES, True),
        (si.JOB_TRIGGER_NO, False),
    ],
)
def test_j3_whether_a_job_may_trigger_is_what_was_written(
    written: si.JobTrigger,
    may: bool | None,  # noqa: FBT001
) -> None:
    for spec in (spec_of(jobTrigger=written), old_spec(jobTrigger=written)):
        assert spec.may_trigger is may


def test_the_old_generation_may_expire() -> None:
    assert old_spec(executionTimeoutMilliSeconds=5_000, Originator=True).timeout_ms == 5_000


def test_a_required_node_comes_with_the_tags() -> None:
    tag = {"yunikorn.apache.org/requiredNode": "n9"}
    assert spec_of(allocationTags=tag).constraints.required_node == "n9"
    assert old_spec(tags=tag).constraints.required_node == "n9"
    elsewhere = {"note": "yunikorn.apache.org/requiredNode"}
    assert spec_of(allocationTags=elsewhere).constraints.required_node == ""


@pytest.mark.parametrize(
    ("text", "created"),
    [
        ("7", 7_000),
        ("0", 0),
        ("", None),
        ("-7", None),
        ("7.5", None),
        ("١٢", None),
        ("9" * 10, 9_999_999_999_000),
        ("9" * 11, None),
    ],
)
def test_the_creation_comes_with_the_tags(text: str, created: int | None) -> None:
    (event,) = read(ask("k", allocationTags={"creationTime": text})).events
    assert isinstance(event, AskAdded)
    assert event.created_ms == created


def terms(**requirement: Any) -> si.NodeConstraints:
    found = si.NodeSelectorRequirement(**requirement)
    return si.NodeConstraints(requiredTerms=[si.NodeSelectorTerm(matchExpressions=[found])])


def weighed(weight: int, key: str = "zone") -> si.NodePreferences:
    wanted = si.NodeSelectorRequirement(key=key, operator="Exists")
    term = si.NodeSelectorTerm(matchExpressions=[wanted])
    return si.NodePreferences(terms=[si.PreferredTerm(weight=weight, term=term)])


LONG = "x" * (limits.NAME_CHARACTERS_MAX + 1)
PATH = "constraints.requiredTerms[0].matchExpressions[0]"


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"allocationKey": ""}, "allocationKey: is empty"),
        ({"allocationKey": LONG}, "allocationKey: has 1025 characters"),
        ({"applicationID": LONG}, "applicationID: has 1025 characters"),
        ({"applicationID": ""}, "applicationID: is empty"),
        ({"resourcePerAlloc": None}, "resourcePerAlloc: asks for nothing"),
        ({"resourcePerAlloc": resource(vcore=0)}, "resourcePerAlloc: asks for nothing"),
        ({"resourcePerAlloc": resource(vcore=-1)}, "resourcePerAlloc[vcore]: -1 is negative"),
        (
            {"resourcePerAlloc": resource(memory=1 << 62)},
            "resourcePerAlloc[memory]: 4611686018427387904 is too large",
        ),
        (
            {"resourcePerAlloc": si.Resource(resources={"": si.Quantity(value=1)})},
            "resourcePerAlloc: has a quantity without a resource type",
        ),
        ({"partitionName": LONG}, "partitionName: has 1025"),
        ({"protection": 9}, "protection: 9 is unknown"),
        ({"jobTrigger": 3}, "jobTrigger: 3 is unknown"),
        ({"graceSeconds": -1}, "graceSeconds: -1 is not between"),
        ({"jobKey": "j", "jobMembers": -1}, "jobMembers: -1 is not between"),
        ({"jobMembers": 2}, "jobKey: is empty while jobMembers is set"),
        ({"constraints": terms(key="", operator="In", values=["a"])}, f"{PATH}.key: is empty"),
        ({"constraints": terms(key="a", operator="in")}, f"{PATH}.operator: 'in' is unknown"),
        ({"constraints": terms(key="a", operator="In")}, f"{PATH}.values: In needs at least"),
        (
            {"constraints": terms(key="a", operator="Exists", values=["b"])},
            f"{PATH}.values: Exists takes no values",
        ),
        (
            {"constraints": terms(key="a", operator="Lt", values=["b"])},
            f"{PATH}.values: Lt takes one whole number",
        ),
        (
            {"constraints": si.NodeConstraints(tolerations=[si.Toleration(value="x")])},
            "constraints.tolerations[0].key: is empty, which only Exists may be",
        ),
        (
            {"constraints": si.NodeConstraints(tolerations=[si.Toleration(key="a", effect="No")])},
            "constraints.tolerations[0].effect: 'No' is unknown",
        ),
        (
            {"constraints": si.NodeConstraints(hostPorts=[si.HostPort(port=65_536)])},
            "constraints.hostPorts[0].port: 65536 is not between 1 and 65535",
        ),
        (
            {"constraints": si.NodeConstraints(allowedNodes=["n"] * (limits.LISTED_MAX + 1))},
            "constraints.allowedNodes: has 5001 entries",
        ),
        (
            {"preferences": weighed(limits.PREFERENCE_WEIGHT_MAX + 1)},
            "preferences.terms[0].weight: 1000001 is not between -1000000 and 1000000",
        ),
        (
            {"preferences": weighed(-limits.PREFERENCE_WEIGHT_MAX - 1)},
            "preferences.terms[0].weight: -1000001 is not between -1000000 and 1000000",
        ),
        (
            {"preferences": weighed(1, key="")},
            "preferences.terms[0].term.matchExpressions[0].key: is empty",
        ),
        (
            {"preferences": si.NodePreferences(groups=[si.GroupPreference(topologyKey="zone")])},
            "preferences.groups[0].group: is empty",
        ),
        (
            {"preferences": si.NodePreferences(groups=[si.GroupPreference(group="web")])},
            "preferences.groups[0].topologyKey: is empty",
        ),
    ],
)
def test_an_ask_that_is_wrong_is_rejected_by_field(more: dict[str, Any], complaint: str) -> None:
    wrong = ask("k")
    wrong.MergeFrom(si.Allocation(**{name: value for name, value in more.items() if value}))
    for name, value in more.items():
        if not value:
            wrong.ClearField(name)
        elif name in ("resourcePerAlloc", "constraints", "preferences"):
            getattr(wrong, name).CopyFrom(value)
    assert reason_of(read(wrong)).startswith(complaint)


def test_more_than_one_allocation_an_ask_is_rejected_in_its_generation() -> None:
    batch = read_old(old_ask(maxAllocations=2))
    assert reason_of(batch).startswith("maxAllocations: 2 is not supported")
    (refusal,) = batch.refusals
    assert isinstance(refusal, AskRejected)
    assert refusal.generation is Generation.ASK


# Existing and foreign allocations -------------------------------------------------------------------------------


def test_with_a_node_it_runs_already() -> None:
    mark = soft_mark("d", "b", "n")
    running = ask("k", nodeID="n1", startedAt=5, releasing=mark, resourcePerAlloc=resource())
    (event,) = read(running).events
    assert isinstance(event, AllocationAdded)
    assert (event.node_id, event.started_ms, event.spec.resource) == ("n1", 5, ())
    assert event.releasing == ReleaseMark(Termination.PREEMPTED_BY_SCHEDULER, "d", "b", "n", "soft")


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"startedAt": -1}, "startedAt: -1 is not between"),
        ({"releasing": si.ReleasingMark(terminationType=UNKNOWN)}, "releasing.terminationType: 77"),
        ({"nodeID": LONG}, "nodeID: has 1025"),
    ],
)
def test_a_running_one_that_is_wrong(more: dict[str, Any], complaint: str) -> None:
    assert reason_of(read(ask("k", **{"nodeID": "n1", **more}))).startswith(complaint)


def test_foreign_allocations() -> None:
    facts: dict[str, Any] = {"applicationID": "", "nodeID": "n1"}
    batch = read(
        ask("s", allocationTags={"foreign": "static"}, **facts),
        ask("d", allocationTags={"foreign": "default"}, **facts),
        ask("x", allocationTags={"foreign": "static"}, applicationID=""),
        ask("y", **facts),
    )
    found = (("vcore", 1),)
    tags = [(ask("", allocationTags={"foreign": kind})) for kind in ("static", "default")]
    static, other = (
        (si.Allocation(allocationTags=one.allocationTags).SerializeToString(),) for one in tags
    )
    assert batch.events == [
        ForeignAdded(RM, "s", "n1", found, static=True, tags=static),
        ForeignAdded(RM, "d", "n1", found, static=False, tags=other),
    ]
    reasons = [refusal.reason for refusal in batch.refusals if isinstance(refusal, AskRejected)]
    assert [reason.split(":")[0] for reason in reasons] == ["nodeID", "applicationID"]


# Releases and vetoes --------------------------------------------------------------------------------------------


def released(*releases: si.AllocationRelease) -> Batch:
    return read(releases=si.AllocationReleasesRequest(allocationsToRelease=releases))


def test_releases() -> None:
    batch = released(
        si.AllocationRelease(
            applicationID="app",
            allocationKey="k",
            terminationType=si.PREEMPTED_BY_SCHEDULER,
            message="why",
        ),
        si.AllocationRelease(applicationID="app", UUID="u", terminationType=si.STOPPED_BY_RM),
        si.AllocationRelease(applicationID="app"),
        si.AllocationRelease(allocationKey="foreign"),
    )
    new, old = Generation.ALLOCATION, Generation.ASK
    assert batch.events == [
        ReleaseRequested(RM, "app", "k", "default", Termination(3), "why", new),
        ReleaseRequested(RM, "app", "u", "default", Termination(1), "", old),
        ReleaseRequested(RM, "app", "", "default", Termination(0), "", new),
        ReleaseRequested(RM, "", "foreign", "default", Termination(0), "", new),
    ]


def test_a_long_message_of_a_release_is_cut() -> None:
    (event,) = released(si.AllocationRelease(allocationKey="k", message="x" * 10_000)).events
    assert isinstance(event, ReleaseRequested)
    assert event.message == "x" * 1_024


def test_releases_of_asks_leave_what_is_placed() -> None:
    release = si.AllocationAskRelease(
        applicationID="app", allocationKey="k", terminationType=si.STOPPED_BY_RM
    )
    (event,) = read(releases=si.AllocationReleasesRequest(allocationAsksToRelease=[release])).events
    assert isinstance(event, ReleaseRequested)
    assert (event.asks_only, event.generation) == (True, Generation.ASK)


def test_a_release_with_an_unknown_type_or_of_nothing() -> None:
    wrong = si.AllocationRelease(applicationID="app", allocationKey="k", terminationType=UNKNOWN)
    assert reason_of(released(wrong)) == "release: terminationType: 77 is unknown"
    (note,) = released(si.AllocationRelease(terminationType=si.STOPPED_BY_RM)).refusals
    assert isinstance(note, Noted)
    assert note.code is Code.RELEASE_UNKNOWN


def test_vetoes() -> None:
    veto = si.VictimVeto(decisionID="d", allocationKey="k", reason="no")
    assert read(vetoes=[veto]).events == [VictimVetoed(RM, "d", "k", "no")]


def test_a_veto_with_an_endless_name_is_noted_and_a_long_reason_is_cut() -> None:
    long = "x" * (limits.NAME_CHARACTERS_MAX + 1)
    (note,) = read(vetoes=[si.VictimVeto(decisionID=long, allocationKey="k")]).refusals
    assert isinstance(note, Noted)
    assert note.message.startswith("veto: decisionID: has 1025 characters")
    veto = si.VictimVeto(decisionID="d", allocationKey="k", reason=long)
    assert read(vetoes=[veto]).events == [VictimVetoed(RM, "d", "k", long[:-1])]


def test_answers_to_plan_checks() -> None:
    refused = si.PlanCheckAnswer(
        checkID="7", partitionName="GPU", refused=[{"allocationKey": "k", "reason": "why"}]
    )
    assert read(planCheckAnswers=[si.PlanCheckAnswer(checkID="6", fits=True), refused]).events == [
        PlanChecked(RM, "default", "6", fits=True),
        PlanChecked(RM, "gpu", "7", fits=False, refused=(("k", "why"),)),
    ]


def test_an_answer_that_contradicts_itself_or_has_an_endless_name_is_noted() -> None:
    both = si.PlanCheckAnswer(checkID="7", fits=True, refused=[{"allocationKey": "k"}])
    long = si.PlanCheckAnswer(checkID="x" * (limits.NAME_CHARACTERS_MAX + 1))
    notes = [one for one in read(planCheckAnswers=[both, long]).refusals if isinstance(one, Noted)]
    assert [one.code for one in notes] == [Code.PLAN_CHECK_UNKNOWN] * 2
    assert notes[0].message == "planCheckAnswers: refused: is set although `fits` is true"
    assert notes[1].message.startswith("planCheckAnswers: checkID: has 1025 characters")


def test_an_ask_answers_plan_checks_only_if_its_manager_checks_it() -> None:
    assert spec_of(rmCheck=True, answersPlanChecks=True).plan_checks
    assert not spec_of(answersPlanChecks=True).plan_checks
    assert old_spec(rmCheck=True, answersPlanChecks=True).plan_checks


def test_disruption_budgets() -> None:
    told = [
        si.DisruptionBudget(name="work/web", allowed=2),
        si.DisruptionBudget(name="work/db"),
        si.DisruptionBudget(name="work/old", allowed=5, removed=True),
    ]
    assert read(disruptionBudgets=told).events == [
        DisruptionsAllowed(RM, "work/web", 2),
        DisruptionsAllowed(RM, "work/db", 0),
        DisruptionsAllowed(RM, "work/old", None),
    ]


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        (si.DisruptionBudget(allowed=1), "name: is empty"),
        (si.DisruptionBudget(name="x" * 1025), "name: has 1025 characters, allowed are 1024"),
        (si.DisruptionBudget(name="b", allowed=-1), "allowed: -1 is not between 0 and 2147483647"),
    ],
)
def test_a_disruption_budget_that_cannot_be_is_noted(
    budget: si.DisruptionBudget, problem: str
) -> None:
    batch = read(disruptionBudgets=[budget])
    assert batch.events == []
    (note,) = batch.refusals
    assert isinstance(note, Noted)
    assert (note.code, note.message) == (Code.DISRUPTIONS_REFUSED, f"disruptionBudgets: {problem}")


def test_a_victims_release_goes_out_whole() -> None:
    decision = Released(
        RM, "default", "k", "app", Termination.PREEMPTED_BY_SCHEDULER, "for root.a", "g-1-2",
        "uid-b", ("n1",), delivery="evict",
    )  # fmt: skip
    (sent,) = answers.released(decision).released
    assert sent == si.AllocationRelease(
        partitionName="default",
        applicationID="app",
        terminationType=si.PREEMPTED_BY_SCHEDULER,
        message="for root.a",
        allocationKey="k",
        decisionID="g-1-2",
        beneficiary="uid-b",
        nodes=["n1"],
        delivery="evict",
    )


# Nodes ----------------------------------------------------------------------------------------------------------


def nodes(*found: si.NodeInfo, **more: Any) -> Batch:
    return whole(node_batching(si.NodeRequest(rmID=RM, nodes=found, **more), Reader()))


def test_the_life_of_a_node() -> None:
    capacity = resource(vcore=4, gpu=0)
    created = NodeInfo(
        nodeID="n",
        action=NodeInfo.CREATE_DRAIN,
        schedulableResource=capacity,
        attributes={"si/node-partition": "Gpu", "rack": "r"},
        labels={"b": "2", "a": "1"},
        taints=[si.Taint(key="k", value="v", effect="NoSchedule")],
    )
    batch = nodes(
        created,
        NodeInfo(nodeID="n", action=NodeInfo.CREATE),
        NodeInfo(nodeID="n", action=NodeInfo.DRAIN_NODE),
        NodeInfo(nodeID="n", action=NodeInfo.DRAIN_TO_SCHEDULABLE),
        NodeInfo(nodeID="n", action=NodeInfo.DECOMISSION),
        syncComplete=si.SyncComplete(nodes=1, asks=4),
    )
    assert batch.events == [
        NodeAdded(
            RM,
            "n",
            (("vcore", 4),),
            schedulable=False,
            partition="gpu",
            labels=(("a", "1"), ("b", "2")),
            taints=(Taint("k", "v", "NoSchedule"),),
            attributes=(("rack", "r"), ("si/node-partition", "Gpu")),
        ),
        NodeAdded(RM, "n", ()),
        NodeDrained(RM, "n"),
        NodeEnabled(RM, "n"),
        NodeRemoved(RM, "n"),
        SyncCompleted(RM, 1, 0, 0, 4),
    ]


def test_an_update_leaves_what_it_does_not_speak_of() -> None:
    update = NodeInfo.UPDATE
    batch = nodes(
        NodeInfo(nodeID="n", action=update),
        NodeInfo(nodeID="n", action=update, schedulableResource=si.Resource()),
        NodeInfo(nodeID="n", action=update, labels={"a": "1"}),
    )
    assert batch.events == [
        NodeUpdated(RM, "n"),
        NodeUpdated(RM, "n", capacity=()),
        NodeUpdated(RM, "n", labels=(("a", "1"),), taints=()),
    ]


def test_what_older_clients_say_is_occupied_is_foreign() -> None:
    capacity = resource(vcore=4)
    batch = nodes(
        NodeInfo(
            nodeID="n",
            action=NodeInfo.CREATE,
            schedulableResource=capacity,
            occupiedResource=capacity,
        ),
        NodeInfo(nodeID="n", action=NodeInfo.UPDATE, occupiedResource=si.Resource()),
        NodeInfo(nodeID="m", action=NodeInfo.CREATE, occupiedResource=si.Resource()),
    )
    foreign = [event for event in batch.events if isinstance(event, ForeignAdded)]
    assert foreign == [
        ForeignAdded(RM, f"{OCCUPIED_KEY}n", "n", (("vcore", 4),), static=True),
        ForeignAdded(RM, f"{OCCUPIED_KEY}n", "n", (), static=True),
    ]


def test_what_runs_on_a_node_that_comes() -> None:
    running = ask("k", UUID="u", allocationTags={"creationTime": "3"})
    wrong, other = ask("", UUID=""), ask("o", nodeID="elsewhere")
    found = NodeInfo(
        nodeID="n", action=NodeInfo.CREATE, existingAllocations=[running, wrong, other]
    )
    batch = nodes(found)
    event = batch.events[1]
    assert isinstance(event, AllocationAdded)
    assert (event.key, event.node_id, event.created_ms) == ("k", "n", 3_000)
    assert event.generation is Generation.ASK
    reasons = [refusal.reason for refusal in batch.refusals if isinstance(refusal, AskRejected)]
    assert [reason.split(":")[0] for reason in reasons] == ["allocationKey", "nodeID"]


@pytest.mark.parametrize(
    ("node", "complaint"),
    [
        (NodeInfo(action=NodeInfo.CREATE), "nodeID: is empty"),
        (NodeInfo(nodeID=LONG, action=NodeInfo.CREATE), "nodeID: has 1025"),
        (NodeInfo(nodeID="n"), "action: 0 is unknown"),
        (NodeInfo(nodeID="n", action=99), "action: 99 is unknown"),  # type: ignore[arg-type]
        (
            NodeInfo(nodeID="n", action=NodeInfo.CREATE, schedulableResource=resource(vcore=-1)),
            "schedulableResource[vcore]: -1 is negative",
        ),
        (
            NodeInfo(nodeID="n", action=NodeInfo.UPDATE, occupiedResource=resource(vcore=-1)),
            "occupiedResource[vcore]: -1 is negative",
        ),
        (
            NodeInfo(nodeID="n", action=NodeInfo.CREATE, taints=[si.Taint(key="k")]),
            "taints[0].effect: '' is unknown",
        ),
    ],
)
def test_a_node_that_is_wrong_is_rejected_by_field(node: si.NodeInfo, complaint: str) -> None:
    assert reason_of(nodes(node)).startswith(complaint)


# Applications ---------------------------------------------------------------------------------------------------


def test_applications_come_and_go() -> None:
    new = si.AddApplicationRequest(
        applicationID="app",
        queueName="root.a",
        partitionName="DEFAULT",
        ugi=si.UserGroupInformation(user="u", groups=["g"]),
        tags={"namespace": "ns"},
        executionTimeoutMilliSeconds=9,
        gangSchedulingStyle="Hard",
    )
    changed = si.ApplicationUpdate(applicationID="app", tags={"namespace": "other"})
    gone = si.RemoveApplicationRequest(applicationID="app")
    batch = application_batch(
        si.ApplicationRequest(rmID=RM, new=[new], updates=[changed], remove=[gone])
    )
    assert batch.events == [
        ApplicationAdded(
            RM, "app", "root.a", "default", "u", ("g",), {"namespace": "ns"}, 9, "Hard"
        ),
        ApplicationRetagged(RM, "app", {"namespace": "other"}),
        ApplicationRemoved(RM, "app"),
    ]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"new": [si.AddApplicationRequest()]}, "applicationID: is empty"),
        ({"remove": [si.RemoveApplicationRequest()]}, "applicationID: is empty"),
        ({"updates": [si.ApplicationUpdate()]}, "applicationID: is empty"),
        (
            {
                "updates": [
                    si.ApplicationUpdate(
                        applicationID="a", tags={f"t{number}": "" for number in range(5_001)}
                    )
                ]
            },
            "tags: ",
        ),
        (
            {"new": [si.AddApplicationRequest(applicationID="a", executionTimeoutMilliSeconds=-1)]},
            "executionTimeoutMilliSeconds: -1",
        ),
        (
            {
                "new": [
                    si.AddApplicationRequest(applicationID="a", placeholderAsk=resource(vcore=-1))
                ]
            },
            "placeholderAsk[vcore]: -1 is negative",
        ),
    ],
)
def test_an_application_that_is_wrong_is_rejected_by_field(
    message: dict[str, Any], complaint: str
) -> None:
    assert reason_of(application_batch(si.ApplicationRequest(**message))).startswith(complaint)
