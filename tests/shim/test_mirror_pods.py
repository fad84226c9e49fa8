"""Stories of pods: gates, claims, placement, binding, deletion, updates, refusals."""

import pytest

from shim_client.cluster import (
    Bind,
    ClusterError,
    ConflictError,
    MissingError,
    ObjectRef,
    PatchPod,
)
from shim_client.messages import (
    ApplicationAnswer,
    ApplicationState,
    Placed,
    PodRefused,
    PodReport,
    Protection,
    Released,
    StillWaiting,
    TerminationType,
    Waiting,
)
from tests.shim.objects import Item, claim, foreign, named, node, pod
from tests.shim.story import Story

ALLOW = "yunikorn.apache.org/allow-preemption"


def started(*items: Item) -> Story:
    return Story().start(node("n1"), node("n2"), *items).forget()


def test_an_ask_is_placed_bound_and_known_to_run() -> None:
    story = started(pod("a"))
    story.hear(Placed("uid-a", "n1"))
    assert story.did() == ["bind a@n1"]
    story.outcome(Bind(ref(story, "a"), "n1"))
    assert story.did() == ["event Pod/a Scheduled"]
    story.see(pod("a", node="n1"))
    assert story.told() == []
    assert story.mirror.tally().bound == 1


def ref(story: Story, name: str) -> ObjectRef:
    return story.mirror.state.pods[f"uid-{name}"].facts.ref


def test_1_1_gates_hold_a_pod_and_their_removal_makes_it_an_ask() -> None:
    gated = pod("a", spec={"schedulingGates": [{"name": "quota.example/wait"}]})
    story = Story().start(node("n1"), gated)
    assert "ask a" not in story.told()
    assert "event Pod/a SchedulingGated" in story.did()
    story.see(gated)
    assert story.did() == []
    story.see(pod("a"))
    assert story.told() == ["app app in root.a", "ask a"]


def test_1_4_a_missing_claim_holds_a_pod_until_it_is_there() -> None:
    wants = pod("a", spec={"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]})
    story = Story().start(node("n1"), wants, claim("c", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert "ask a" not in story.told()
    held = {"event Pod/a FailedScheduling", "condition a Unschedulable"}
    assert held <= set(story.did())
    story.see(wants)
    assert story.did() == []
    story.see(claim("c"))
    assert story.told() == ["app app in root.a", "ask a"]
    assert story.did() == []


@pytest.mark.parametrize(
    ("claimed", "told"),
    [
        ({"name": "gpu", "resourceClaimName": "big"}, "big"),
        ({"name": "gpu", "resourceClaimTemplateName": "one"}, "template one"),
        ({"name": "gpu"}, "gpu"),
    ],
)
def test_1_4_a_pod_with_device_claims_is_held(claimed: dict[str, str], told: str) -> None:
    story = Story().start(node("n1"), pod("a", spec={"resourceClaims": [claimed]}), pod("b"))
    assert "ask a" not in (said := story.told())
    assert "ask b" in said
    why = f"device claims are not supported: {told}; use another scheduler for this pod"
    assert story.mirror.state.pods["uid-a"].said == ("SchedulingSkipped", why)
    assert {"event Pod/a FailedScheduling", "condition a SchedulingSkipped"} <= set(story.did())


def test_1_4_a_pod_with_device_claims_that_runs_is_counted() -> None:
    claimed = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "big"}]}
    story = Story().start(node("n1"), pod("a", node="n1", spec=claimed))
    assert "alloc a@n1" in story.told()
    assert "event Pod/a FailedScheduling" not in story.did()


def test_1_1_an_ended_pod_is_released() -> None:
    story = started(pod("a", node="n1"))
    story.see(pod("a", node="n1", status={"phase": "Succeeded"}))
    assert story.told() == ["release a STOPPED_BY_RM"]
    story.gone(pod("a", node="n1"))
    assert story.told() == []


def test_a_pod_deleted_between_decision_and_bind_is_given_back() -> None:
    story = started(pod("a"))
    story.hear(Placed("uid-a", "n1"))
    bind = story.binds()[0]
    story.gone(pod("a"))
    assert story.told() == ["release a STOPPED_BY_RM"]
    story.outcome(bind, MissingError("gone"))
    assert story.told() == []


def test_1_8_a_placement_of_a_pod_that_is_gone_is_released_at_once() -> None:
    story = started(pod("a"))
    story.gone(pod("a"))
    story.forget()
    story.hear(Placed("uid-a", "n1", "app", "default"))
    assert (story.told(), story.did()) == (["release a STOPPED_BY_RM"], [])


def test_1_8_a_binding_that_fails_for_good_makes_it_an_ask_again() -> None:
    story = started(pod("a"))
    story.hear(Placed("uid-a", "n1"))
    story.outcome(story.binds()[0], ClusterError("no"))
    assert story.told() == ["release a SCHEDULING_FAILED_ON_RM"]
    assert "event Pod/a FailedBinding" in story.did()
    story.hear(Placed("uid-a", "n2"))
    assert story.did() == ["bind a@n2"]


def test_a_pod_that_somebody_else_bound_is_told_where_it_is() -> None:
    story = started(pod("a"))
    story.see(pod("a", node="n2"))
    assert story.told() == ["alloc a@n2"]
    story.hear(Placed("uid-a", "n1"))
    assert story.told() == ["release a SCHEDULING_FAILED_ON_RM", "alloc a@n2"]
    assert story.did() == []


def test_a_node_that_went_before_the_binding_makes_it_an_ask_again() -> None:
    story = started(pod("a"))
    story.hear(Placed("uid-a", "n1"))
    bind = story.binds()[0]
    story.gone(node("n1"))
    story.hear(Released("uid-a", TerminationType.STOPPED_BY_RM, message="node n1 is gone"))
    assert story.told() == ["node n1 DECOMISSION"]
    story.outcome(bind, ConflictError("there is no node n1"))
    assert story.told() == ["ask a"]


def test_a_placement_on_a_node_that_just_went_ends_as_an_ask() -> None:
    story = started(pod("a"))
    story.gone(node("n1"))
    story.hear(Placed("uid-a", "n1"))
    assert story.did() == ["event Node/n1 NodeDeleted"]
    story.hear(Released("uid-a", TerminationType.STOPPED_BY_RM))
    assert story.told() == ["node n1 DECOMISSION", "ask a"]


def pod_reports(story: Story) -> list[PodReport]:
    return [report for report in story.reports if isinstance(report, PodReport)]


def test_1_8_our_own_release_echoed_is_nothing() -> None:
    story = started(pod("a", node="n1"))
    story.gone(pod("a", node="n1"))
    story.forget()
    story.hear(Released("uid-a", TerminationType.STOPPED_BY_RM))
    assert (story.told(), story.did()) == ([], [])


def test_1_4_a_resize_is_an_update_of_the_same_key() -> None:
    story = started(pod("a"))
    story.see(pod("a", cpu="2"))
    assert story.last_pod().resource == {"pods": 1, "vcore": 2000}
    assert story.told() == ["ask a"]
    story.see(pod("a", cpu="2"))
    assert story.told() == []


def test_a_pod_that_starts_to_run_is_told_since_when() -> None:
    story = started(pod("a"))
    story.hear(Placed("uid-a", "n1"))
    story.see(pod("a", node="n1", status={"startTime": "2026-01-01T00:01:00Z"}))
    assert story.last_pod().started_ms == 1767225660000
    assert story.told() == ["alloc a@n1"]


def test_1_1_a_foreign_pod_is_resent_when_resized_and_released_when_gone() -> None:
    story = started(foreign("f", "n1"))
    story.see(foreign("f", "n1", status={"containerStatuses": [
        {"name": "main", "resources": {"requests": {"cpu": "3"}}}]}))  # fmt: skip
    assert story.told() == ["alloc f@n1"]
    story.gone(foreign("f", "n1"))
    assert story.told() == ["release f STOPPED_BY_RM"]


def test_1_1_a_foreign_pod_without_node_is_not_told() -> None:
    story = started(foreign("f"))
    assert story.told() == []
    story.see(foreign("f", "n1"))
    assert story.told() == ["alloc f@n1"]


def test_a_foreign_pod_belongs_to_the_partition_of_its_node() -> None:
    story = Story().start(node("n1", labels={"evenhand.io/partition": "gpu"}), foreign("f", "n1"))
    assert pod_reports(story)[0].partition == "gpu"


def test_1_4_the_originator_is_the_first_real_pod() -> None:
    holder = pod("hold", annotations={"internal.yunikorn.apache.org/placeholder": "true"},
                 metadata={"ownerReferences": [{"kind": "Pod", "uid": "uid-real"}]})  # fmt: skip
    story = Story().start(node("n1"), holder, pod("other"), pod("real"))
    originators = {report.key for report in pod_reports(story) if report.originator}
    assert originators == {"uid-real"}


def test_1_4_a_class_that_changes_its_mind_is_told_for_its_pods() -> None:
    story = Story().start(
        node("n1"), named("PriorityClass", "c", value=1), pod("a", spec={"priorityClassName": "c"})
    )
    story.forget()
    story.see(named("PriorityClass", "c", value=1, annotations={ALLOW: "false"}))
    assert story.last_pod().protection is Protection.PREFER_NOT
    assert story.told() == ["ask a"]
    story.gone(named("PriorityClass", "c", value=1))
    assert story.last_pod().allow_preempt_self


@pytest.mark.parametrize(
    ("state", "reason"),
    [(Waiting.SKIPPED, "SchedulingSkipped"), (Waiting.FAILED, "Unschedulable")],
)
def test_1_8_why_a_pod_waits_is_written_when_it_changes(state: Waiting, reason: str) -> None:
    story = started(pod("a"))
    story.hear(StillWaiting("uid-a", state, "because"), StillWaiting("uid-a", state, "because"))
    assert story.did() == [f"condition a {reason}"]
    assert story.mirror.tally().explained == 1
    story.hear(Placed("uid-a", "n1"))
    assert story.did() == ["bind a@n1"]
    assert story.mirror.tally().explained == 0


def test_1_8_a_refused_ask_is_told_again_only_when_it_changes() -> None:
    story = started(pod("a"))
    story.hear(PodRefused("uid-a", "too large"))
    assert story.did() == ["event Pod/a TaskRejected", "condition a TaskRejected"]
    story.see(pod("a"))
    assert story.told() == []
    story.see(pod("a", cpu="2"))
    assert story.told() == ["ask a"]


def test_1_8_a_refused_update_leaves_the_pod_known_to_the_core() -> None:
    story = started(pod("a", node="n1"))
    story.see(pod("a", node="n1", cpu="2"))
    story.forget()
    story.hear(PodRefused("uid-a", "too large"))
    assert story.did() == ["event Pod/a TaskRejected"]
    story.gone(pod("a", node="n1"))
    assert story.told() == ["release a STOPPED_BY_RM"]


def test_1_8_the_pods_of_a_rejected_application_fail() -> None:
    story = Story(core="silent").start(pod("a"))
    story.hear(ApplicationAnswer("app", accepted=False, reason="queue root.a is stopped"))
    assert story.did() == ["event Pod/a ApplicationRejected", "phase a Failed ApplicationRejected"]
    story.see(pod("a", status={"phase": "Failed"}))
    story.told()
    story.see(pod("b"))
    assert story.told()[-1] == "app app in root.a"


def test_an_application_without_pods_is_forgotten_when_the_core_completed_it() -> None:
    story = started(pod("a", node="n1"))
    story.gone(pod("a", node="n1"))
    story.hear(ApplicationState("app", "Completed"))
    assert story.mirror.state.applications == {}


def test_an_application_completed_while_a_pod_came_is_announced_anew() -> None:
    story = started(pod("a", node="n1"))
    story.gone(pod("a", node="n1"))
    story.see(pod("b"))
    story.forget()
    story.hear(ApplicationState("app", "Completed"))
    assert story.told() == ["app app in root.a", "ask b"]


def test_an_application_that_never_ran_is_removed_with_its_last_pod() -> None:
    story = started(pod("a"))
    story.gone(pod("a"))
    assert story.told() == ["release a STOPPED_BY_RM", "remove app app"]


def test_1_6_cordon_uncordon_and_change_of_a_node() -> None:
    story = started()
    story.see(node("n1", unschedulable=True))
    assert story.told() == ["node n1 DRAIN_NODE"]
    story.see(node("n1"))
    assert story.told() == ["node n1 DRAIN_TO_SCHEDULABLE"]
    story.see(node("n1", cpu="4"))
    assert story.told() == ["node n1 UPDATE"]
    story.see(node("n1", cpu="4", taints=[{"key": "k", "effect": "NoSchedule"}]))
    assert story.told() == ["node n1 UPDATE"]
    story.see(node("n1", labels={"evenhand.io/partition": "gpu"}))
    assert story.told() == [
        "node n1 DECOMISSION", "node n1 CREATE_DRAIN", "node n1 DRAIN_TO_SCHEDULABLE",
    ]  # fmt: skip


def test_1_6_pods_of_a_deleted_node_are_orphans_and_not_released_twice() -> None:
    story = started(pod("a", node="n1"))
    story.gone(node("n1"))
    story.hear(Released("uid-a", TerminationType.STOPPED_BY_RM))
    assert story.told() == ["node n1 DECOMISSION"]
    story.gone(pod("a", node="n1"))
    assert story.told() == []


def test_garbage_in_a_pod_is_an_event_and_the_rest_goes_on() -> None:
    bad = pod("bad", spec={"containers": [{"resources": {"requests": {"cpu": "1 Gi"}}}]})
    story = Story().start(node("n1"), bad, pod("good"))
    assert "ask good" in story.told()
    said = {"event Pod/bad PodNotReadable", "condition bad PodNotReadable"}
    assert said <= set(story.did())
    story.see(bad)
    assert story.did() == []
    story.see(pod("bad"))
    assert story.told() == ["ask bad"]


@pytest.mark.parametrize("metadata", [{}, {"name": "x"}, {"uid": 5, "name": "x"}])
def test_a_pod_without_names_is_said_once_and_nothing_breaks(metadata: dict[str, object]) -> None:
    story = started()
    story.see({"kind": "Pod", "metadata": metadata}, {"kind": "Pod", "metadata": metadata})
    assert story.did() == ["event Pod/unnamed PodNotReadable"]


def test_garbage_in_a_node_is_an_event_on_the_node() -> None:
    story = Story().start({**node("n1"), "status": {"allocatable": {"cpu": "?"}}}, node("n2"))
    assert "event Node/n1 NodeNotReadable" in story.did()
    assert story.told()[-1].startswith("sync nodes=1")


def test_a_namespace_with_broken_json_is_said_on_the_namespace() -> None:
    quota = {"yunikorn.apache.org/namespace.quota": "{"}
    story = Story().start(node("n1"), named("Namespace", "work", annotations=quota), pod("a"))
    assert "event Namespace/work AnnotationNotClear" in story.did()
    assert "ask a" in story.told()


def test_contradicting_application_ids_are_said_on_the_pod_once() -> None:
    torn = pod("a", annotations={"yunikorn.apache.org/app-id": "other"})
    story = Story().start(node("n1"), torn)
    assert "event Pod/a PodNotClear" in story.did()
    story.see(torn)
    assert story.did() == []


def test_a_condition_that_could_not_be_written_is_written_when_it_is_said_again() -> None:
    story = started(pod("a"))
    says = StillWaiting("uid-a", Waiting.FAILED, "no node")
    story.hear(says)
    [patch] = story.actions
    story.forget()
    story.hear(says)
    assert story.did() == []
    story.outcome(patch, ClusterError("500"))
    story.hear(says)
    assert story.did() == ["condition a Unschedulable"]


def conditions(story: Story) -> list[tuple[str, str, str]]:
    found = [one.condition for one in story.actions if isinstance(one, PatchPod) and one.condition]
    return [(status, reason, message) for _, status, reason, message in found]


def test_a_pod_that_lacks_a_claim_has_a_condition() -> None:
    wants = pod("a", spec={"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]})
    story = Story().start(node("n1"), wants)
    assert conditions(story) == [
        ("False", "Unschedulable", "persistentvolumeclaim 'c' is not there")
    ]
    assert story.mirror.tally().held == 1
    story.see(claim("c"))
    assert (story.mirror.tally().held, story.mirror.tally().waiting) == (0, 1)


def test_an_unreadable_pod_has_a_condition() -> None:
    story = started()
    story.see(pod("a", spec={"volumes": "none"}))
    [(status, reason, message)] = conditions(story)
    assert (status, reason) == ("False", "PodNotReadable")
    assert "spec.volumes" in message
    story.forget().see(foreign("b", spec={"containers": "none"}))
    assert conditions(story) == []


def test_an_ephemeral_volume_is_a_claim_that_the_pod_owns() -> None:
    wants = pod("a", spec={"volumes": [{"name": "s", "ephemeral": {"volumeClaimTemplate": {}}}]})
    story = Story().start(node("n1"), wants)
    assert [reason for _, reason, _ in conditions(story)] == ["Unschedulable"]
    story.told()
    story.see(claim("a-s"))
    assert story.told() == []
    assert "was not made for this pod" in conditions(story)[-1][2]
    story.see(claim("a-s", ownerReferences=[{"uid": "uid-a", "controller": True}]))
    assert story.told() == ["app app in root.a", "ask a"]


def test_a_toleration_with_an_unknown_operator_tolerates_nothing() -> None:
    listed = [{"key": "a", "operator": "Maybe"}, {"key": "b", "operator": "Gt", "value": "5"}]
    story = started(pod("a", spec={"tolerations": listed}))
    sent = story.mirror.state.pods["uid-a"].sent
    assert sent is not None
    assert sent.constraints is not None
    assert [one.operator for one in sent.constraints.tolerations] == ["Gt"]
