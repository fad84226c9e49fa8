"""Stories of victims and their preemptors: the order, the mark, the end, the veto, the restart."""

import pytest

from shim_client.cluster import (
    BudgetError,
    ClusterError,
    ConflictError,
    MissingError,
    PatchPod,
    RecordEvent,
    ReleasePod,
)
from shim_client.messages import Placed, PodReport, Released, Releasing, TerminationType, Veto
from tests.shim.objects import Item, named, node, pod
from tests.shim.story import Story, changed

PREEMPTED = TerminationType.PREEMPTED_BY_SCHEDULER
MARK = "evenhand.io/released-for"
DELIVERY = "evenhand.io/delivery"
GOING = {"deletionTimestamp": "2026-01-01T00:05:00Z"}
WITHDRAWN = "condition a PreemptionWithdrawn"


def started(*items: Item) -> Story:
    return Story().start(node("n1"), node("n2"), *items).forget()


def order(key: str = "uid-a", *, by: str = "d1", delivery: str = "", **more: str) -> Released:
    """Return the core's order to evict a victim for `uid-w`."""
    text = more.get("message", "")
    return Released(
        key, PREEMPTED, message=text, decision=by, beneficiary=more.get("to", "uid-w"),
        nodes=("n1",), delivery=delivery,
    )  # fmt: skip


def release_of(story: Story) -> ReleasePod:
    return next(action for action in story.actions if isinstance(action, ReleasePod))


def pod_reports(story: Story) -> list[PodReport]:
    return [report for report in story.reports if isinstance(report, PodReport)]


def budget(name: str, allowed: int = 1, *, app: str = "app", **metadata: object) -> Item:
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "work", **metadata},
        "spec": {"selector": {"matchLabels": {"applicationId": app}}},
        "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
    }


ORDERS = [
    (TerminationType.PREEMPTED_BY_SCHEDULER, "Preempted"),
    (TerminationType.TIMEOUT, "TimedOut"),
    (TerminationType.PLACEHOLDER_REPLACED, "PlaceholderReplaced"),
]


@pytest.mark.parametrize(("kind", "reason"), ORDERS)
def test_1_8_an_order_deletes_the_pod_and_its_end_confirms_with_the_same_type(
    kind: TerminationType, reason: str
) -> None:
    running = pod("a", node="n1")
    story = started(running)
    story.hear(Released("uid-a", kind))
    preempted = kind is TerminationType.PREEMPTED_BY_SCHEDULER
    said = ["condition a PreemptionByScheduler"] if preempted else []
    assert story.did() == [f"event Pod/a {reason}", *said, "delete a"]
    story.see(changed(running, "metadata", **GOING))
    assert story.told() == [], "the core ordered it"
    story.gone(running)
    assert story.told() == [f"release a {kind.name}"]


def test_1_7_a_decision_is_written_on_the_victim_before_it_goes() -> None:
    story = started(pod("a", node="n1"))
    story.hear(order(message="root.b claims its guarantee by decision d1"))
    said = next(one for one in story.actions if isinstance(one, RecordEvent))
    assert said.message == "root.b claims its guarantee by decision d1"
    assert story.did() == [
        "event Pod/a Preempted",
        f"annotate a {{'{MARK}': 'd1/uid-w/n1'}}",
        "condition a PreemptionByScheduler",
        "delete a",
    ]
    story.see(pod("a", node="n1", annotations={MARK: "d1/uid-w/n1"}))
    assert story.told() == [], "the core knows"
    story.gone(pod("a", node="n1"))
    assert story.told() == ["release a PREEMPTED_BY_SCHEDULER d1"]


def test_an_order_that_is_said_again_is_carried_out_once() -> None:
    story = started(pod("a", node="n1"))
    story.hear(order(), order())
    assert [line for line in story.did() if line.startswith("delete")] == ["delete a"]


def test_a_victim_of_a_quota_has_nobody_in_its_mark() -> None:
    story = started(pod("a", node="n1"))
    story.hear(order(to=""))
    assert f"annotate a {{'{MARK}': 'd1//n1'}}" in story.did()


def test_an_eviction_says_so_on_the_pod() -> None:
    story = started(pod("a", node="n1"))
    story.hear(order(delivery="evict"))
    assert story.did() == [
        "event Pod/a Preempted",
        f"annotate a {{'{MARK}': 'd1/uid-w/n1', '{DELIVERY}': 'evict'}}",
        "condition a PreemptionByScheduler",
        "evict a",
    ]


def test_a_delivery_that_is_not_known_is_a_veto_and_touches_nothing() -> None:
    story = started(pod("a", node="n1"))
    story.hear(order(delivery="by hand"))
    assert (story.told(), story.did()) == (["veto a d1"], [])
    story.gone(pod("a", node="n1"))
    assert story.told() == ["release a STOPPED_BY_RM"]


def test_an_eviction_of_a_pod_with_two_budgets_is_a_veto() -> None:
    story = started(pod("a", node="n1"), budget("one"), budget("two"))
    story.hear(order(delivery="evict"))
    [veto] = [one for one in story.reports if isinstance(one, Veto)]
    assert veto.reason.startswith("2 disruption budgets count it")
    assert (story.told(), story.did()) == (["veto a d1"], [])


@pytest.mark.parametrize("error", [BudgetError("429"), ConflictError("409"), ClusterError("500")])
def test_a_victim_that_stays_is_a_veto_and_its_mark_is_taken_back(error: ClusterError) -> None:
    story = started(pod("a", node="n1"))
    story.hear(order(delivery="evict"))
    release = release_of(story)
    story.forget()
    marked = pod("a", node="n1", annotations={MARK: "d1/uid-w/n1"})
    story.see(marked)
    story.outcome(release, error)
    assert story.told() == ["veto a d1"]
    taken = f"annotate a {{'{MARK}': None, '{DELIVERY}': None}}"
    assert story.did() == ["event Pod/a FailedDeletion", taken, WITHDRAWN]
    assert story.mirror.tally().leaving == 0
    story.see(marked)
    assert story.told() == [], "the mark counts no more"
    story.see(pod("a", node="n1"))
    assert story.told() == []
    story.gone(pod("a", node="n1"))
    assert story.told() == ["release a STOPPED_BY_RM"]


def test_a_victim_that_stayed_may_be_ordered_again() -> None:
    story = started(pod("a", node="n1"))
    story.hear(order())
    story.outcome(release_of(story), ClusterError("500"))
    story.forget()
    story.hear(order())
    assert "delete a" in story.did()
    story.see(pod("a", node="n1", annotations={MARK: "d1/uid-w/n1"}))
    story.gone(pod("a", node="n1"))
    assert story.told() == ["release a PREEMPTED_BY_SCHEDULER d1"]


def test_a_victim_that_is_gone_is_no_veto() -> None:
    story = started(pod("a", node="n1"))
    story.hear(order())
    story.outcome(release_of(story), MissingError("404"))
    assert story.told() == []
    story.gone(pod("a", node="n1"))
    assert story.told() == ["release a PREEMPTED_BY_SCHEDULER d1"]


def test_a_victim_that_somebody_else_deletes_is_no_veto() -> None:
    story = started(pod("a", node="n1"))
    story.hear(order(delivery="evict"))
    release = release_of(story)
    story.see(changed(pod("a", node="n1"), "metadata", **GOING))
    story.outcome(release, ConflictError("409"))
    story.gone(pod("a", node="n1"))
    assert story.told() == ["release a PREEMPTED_BY_SCHEDULER d1"]


def test_an_old_release_that_failed_does_not_undo_a_new_one() -> None:
    story = started(pod("a", node="n1"))
    story.hear(order())
    old = release_of(story)
    story.forget()
    story.hear(order(by="d2"))
    story.outcome(old, ClusterError("500"))
    assert story.told() == ["veto a d1"]
    story.gone(pod("a", node="n1"))
    assert story.told() == ["release a PREEMPTED_BY_SCHEDULER d2"]


def test_an_order_about_a_pod_that_is_gone_is_confirmed_at_once() -> None:
    story = started()
    story.hear(Released("uid-x", PREEMPTED, application="app", decision="d1"))
    assert story.told() == ["release x PREEMPTED_BY_SCHEDULER d1"]


# Deletions by others.


def test_a_running_pod_that_somebody_deletes_is_told_as_going() -> None:
    story = started(pod("a", node="n1"))
    story.see(changed(pod("a", node="n1"), "metadata", **GOING))
    assert pod_reports(story)[0].releasing == Releasing(TerminationType.STOPPED_BY_RM)
    assert story.told() == ["alloc a@n1 going"]
    story.see(changed(pod("a", node="n1"), "metadata", **GOING))
    assert story.told() == []
    story.gone(pod("a", node="n1"))
    assert story.told() == ["release a STOPPED_BY_RM"]


def test_at_a_resync_a_pod_that_is_being_deleted_is_told_as_going() -> None:
    story = Story().start(node("n1"), changed(pod("a", node="n1"), "metadata", **GOING))
    assert "alloc a@n1 going" in story.told()


# Restarts (C8).


def marked(name: str = "a", mark: str = "d1/uid-w/n1", **more: str) -> Item:
    return pod(name, node="n1", annotations={MARK: mark, **more})


def test_1_7_a_new_shim_goes_on_with_a_victim_for_an_ask_that_waits() -> None:
    story = Story().start(node("n1"), marked(), pod("w"))
    told = story.told()
    assert "alloc a@n1 going d1" in told
    assert "ask w" in told
    assert story.did().count("delete a") == 1
    story.gone(marked())
    assert story.told() == ["release a PREEMPTED_BY_SCHEDULER d1"]


def test_1_7_a_new_shim_evicts_whom_it_was_evicting() -> None:
    story = Story().start(node("n1"), marked(**{DELIVERY: "evict"}), pod("w"))
    assert "evict a" in story.did()


def test_1_7_a_new_shim_goes_on_with_a_quota() -> None:
    story = Story().start(node("n1"), marked(mark="q-1-2//n1"))
    assert "alloc a@n1 going q-1-2" in story.told()
    assert story.did().count("delete a") == 1


@pytest.mark.parametrize("others", [[], [pod("w", node="n1")]])
def test_1_7_a_new_shim_spares_a_victim_whose_place_nobody_waits_for(others: list[Item]) -> None:
    story = Story().start(node("n1"), marked(), *others)
    told, did = story.told(), story.did()
    assert "alloc a@n1" in told
    assert "delete a" not in did
    assert f"annotate a {{'{MARK}': None, '{DELIVERY}': None}}" in did
    assert WITHDRAWN in did


def test_1_7_a_victim_that_is_being_deleted_already_is_told_with_its_mark() -> None:
    story = Story().start(node("n1"), changed(marked(), "metadata", **GOING))
    assert "alloc a@n1 going d1" in story.told()
    assert "delete a" not in story.did()


def test_a_core_that_was_killed_hears_of_orders_that_stand_on_no_pod_yet() -> None:
    story = started(pod("a", node="n1"), pod("w"))
    story.hear(order())
    story.forget()
    story.lose()
    story.connect()
    assert "alloc a@n1 going d1" in story.told()
    assert "delete a" not in story.did(), "that is under way"


def test_a_core_that_was_killed_hears_no_veto_of_an_order_that_it_does_not_know() -> None:
    story = started(pod("a", node="n1"))
    story.hear(order())
    release = release_of(story)
    story.forget()
    story.lose()
    story.outcome(release, ClusterError("500"))
    story.connect()
    told = story.told()
    assert "alloc a@n1" in told
    assert "veto a d1" not in told


@pytest.mark.parametrize("where", ["", "n1"])
def test_a_mark_that_came_with_a_copied_manifest_is_taken_away(where: str) -> None:
    story = started(pod("w"))
    story.see(pod("copy", node=where, annotations={MARK: "d1/uid-w/n1"}))
    assert story.told() == [f"alloc copy@{where}" if where else "ask copy"]
    did = story.did()
    assert did[0] == f"annotate copy {{'{MARK}': None, '{DELIVERY}': None}}"
    assert "delete copy" not in did


def test_a_mark_that_somebody_writes_by_hand_counts_for_nothing_and_goes() -> None:
    story = started(pod("w"), pod("a", node="n1"))
    story.see(marked(mark="d9/uid-w/n1"))
    assert story.told() == []
    taken = [f"annotate a {{'{MARK}': None, '{DELIVERY}': None}}", WITHDRAWN]
    assert story.did() == taken
    story.see(marked(mark="d9/uid-w/n1"))
    assert (story.told(), story.did()) == ([], [])
    story.lose()
    story.connect()
    assert "alloc a@n1" in story.told(), "nor does it in a new session"


def test_a_mark_of_the_listing_waits_for_the_session_and_stays() -> None:
    story = Story()
    story.lists(node("n1"), marked(), pod("w"))
    story.see(marked())
    assert "delete a" not in story.did()
    story.connect()
    assert "alloc a@n1 going d1" in story.told()
    assert "delete a" in story.did()


def test_a_mark_on_a_waiting_pod_is_no_mark() -> None:
    story = Story().start(node("n1"), pod("w"), pod("a", annotations={MARK: "d1/uid-w/n1"}))
    assert "delete a" not in story.did()
    story.hear(Placed("uid-a", "n1"))
    story.see(marked())
    assert "alloc a@n1" not in [line for line in story.told() if "going" in line]


# The pods that get the freed capacity.


def planned(story: Story) -> list[str]:
    return [
        action.message
        for action in story.actions
        if isinstance(action, RecordEvent) and action.reason == "PreemptionPlanned"
    ]


def test_the_pod_that_waits_hears_that_capacity_is_made_in_one_sentence() -> None:
    story = started(pod("w"), *(pod(name, node="n1") for name in "abc"))
    for name in "ab":
        story.mirror.handle(order(f"uid-{name}"))
    story.hear()
    assert planned(story) == [
        "capacity is being freed on node n1 by decision d1: 2 pods are evicted"
    ]
    story.forget()
    story.hear(order("uid-c", by="d2"))
    assert planned(story) == ["capacity is being freed on node n1 by decision d2: 1 pod is evicted"]


def test_a_victim_that_stays_is_not_counted_when_another_goes_for_it() -> None:
    story = started(pod("w"), pod("a", node="n1"), pod("b", node="n1"))
    story.hear(order("uid-a"))
    story.outcome(release_of(story), BudgetError("429"))
    story.forget()
    story.hear(order("uid-b"))
    assert planned(story) == ["capacity is being freed on node n1 by decision d1: 1 pod is evicted"]


def test_a_victims_event_never_names_who_gets_the_capacity() -> None:
    story = started(pod("w"), pod("a", node="n1"))
    story.hear(order())
    said = [one for one in story.actions if isinstance(one, RecordEvent) and one.about.name == "a"]
    assert all("uid-w" not in one.message and "work/w" not in one.message for one in said)


# Disruption budgets.


def test_7_6_budgets_are_told_before_the_pods_that_they_count() -> None:
    told = Story().start(node("n1"), pod("a", node="n1"), budget("web", 2)).told()
    assert told.index("budget work/web 2") < told.index("alloc a@n1")


def test_7_6_a_budget_is_told_when_its_allowance_changes_and_when_it_goes() -> None:
    story = started(pod("a", node="n1"), budget("web", 2))
    story.see(budget("web", 2))
    assert story.told() == []
    story.see(budget("web", 0))
    assert story.told() == ["budget work/web 0"]
    story.gone(budget("web", 0))
    assert story.told() == ["alloc a@n1", "budget work/web gone"]


def test_7_6_a_budget_that_counts_other_pods_by_now_is_told_with_them() -> None:
    story = started(pod("a", node="n1"), budget("web", 2))
    story.see(budget("web", 1, app="other"))
    assert story.last_pod().disruption_groups == ()
    assert story.told() == ["budget work/web 1", "alloc a@n1"]


@pytest.mark.parametrize(("allowed", "generation"), [(-1, 1), (3, 2)])
def test_7_6_a_budget_with_an_outdated_status_allows_nothing(allowed: int, generation: int) -> None:
    story = started(budget("web", allowed, generation=generation))
    story.see(named("Namespace", "work"))
    assert story.mirror.state.sessions[""].budgets_told == {"work/web": 0}


def test_7_6_a_new_session_hears_of_all_budgets_again() -> None:
    story = started(budget("web", 2))
    story.lose()
    story.see(budget("web", 1))
    story.connect()
    assert "budget work/web 1" in story.told()


def test_7_6_a_budget_that_cannot_be_read_is_said_on_it() -> None:
    bad = budget("web")
    bad["status"] = {"disruptionsAllowed": "two"}
    story = started(bad)
    assert story.mirror.state.budgets == {}
    story.see(budget("web", 1))
    assert story.told() == ["budget work/web 1"]


def test_a_patch_that_takes_a_mark_back_is_no_release() -> None:
    story = started(pod("a", node="n1"))
    story.hear(order())
    story.outcome(release_of(story), BudgetError("429"))
    patch = next(action for action in story.actions if isinstance(action, PatchPod))
    story.forget()
    story.outcome(patch, ClusterError("500"))
    assert (story.told(), story.did()) == ([], [])
