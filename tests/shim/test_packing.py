"""Reports in few messages: limits on objects and bytes, and the order of reports about one key (design 1.2)."""

from shim_client.core_client.packing import (
    BYTES_MAX,
    OBJECTS_MAX,
    allocation_requests,
    application_requests,
    node_requests,
)
from shim_client.messages import (
    ApplicationRemoval,
    ApplicationReport,
    ApplicationTags,
    BudgetReport,
    NodeAction,
    NodeReport,
    PodRelease,
    PodReport,
    SyncComplete,
    TerminationType,
    Veto,
)


def ask(key: str, **tags: str) -> PodReport:
    return PodReport(key, "app", "default", {"vcore": 1000}, 0, "", tags)


def end(key: str) -> PodRelease:
    return PodRelease(key, "app", "default", TerminationType.STOPPED_BY_RM)


def test_objects_are_cut_at_their_limit() -> None:
    found = list(allocation_requests([ask(f"k{n}") for n in range(2 * OBJECTS_MAX + 1)], "rm"))
    assert [len(request.allocations) for request in found] == [OBJECTS_MAX, OBJECTS_MAX, 1]
    assert {request.rmID for request in found} == {"rm"}


def test_bytes_are_cut_at_their_limit() -> None:
    found = list(allocation_requests([ask(f"k{n}", big="x" * 300_000) for n in range(5)], "rm"))
    assert [len(request.allocations) for request in found] == [3, 2]
    assert all(request.ByteSize() <= BYTES_MAX for request in found)


def test_an_object_larger_than_a_message_goes_alone() -> None:
    found = list(allocation_requests([ask("a"), ask("b", big="x" * BYTES_MAX), ask("c")], "rm"))
    assert [len(request.allocations) for request in found] == [1, 1, 1]


def test_asks_and_releases_share_a_message_unless_they_are_of_one_key() -> None:
    found = list(allocation_requests([ask("a"), end("b"), Veto("c", "d", "no"), ask("d")], "rm"))
    assert len(found) == 1
    found = list(allocation_requests([ask("a"), end("a"), ask("a"), ask("a")], "rm"))
    shapes = [(len(one.allocations), len(one.releases.allocationsToRelease)) for one in found]
    assert shapes == [(1, 0), (0, 1), (2, 0)]


def test_disruption_budgets_go_with_the_pods() -> None:
    told = [BudgetReport("ns/web", 2), BudgetReport("ns/db", 0), BudgetReport("ns/old", None)]
    [request] = allocation_requests([*told, ask("a")], "rm")
    found = [(one.name, one.allowed, one.removed) for one in request.disruptionBudgets]
    assert found == [("ns/web", 2, False), ("ns/db", 0, False), ("ns/old", 0, True)]
    assert len(request.allocations) == 1


def test_an_application_that_goes_and_comes_is_in_two_messages() -> None:
    new = ApplicationReport("app", "default", "root.a", "ann", ("g",), {"namespace": "n"})
    found = list(application_requests([ApplicationRemoval("app", "default"), new], "rm"))
    assert [(len(one.remove), len(one.new)) for one in found] == [(1, 0), (0, 1)]
    assert found[1].new[0].ugi.user == "ann"


def test_new_tags_follow_their_application_in_a_message_of_their_own() -> None:
    new = ApplicationReport("app", "default", "root.a", "ann", (), {"namespace": "n"})
    changed = [ApplicationTags("app", "default", {"a": "1"}), ApplicationTags("b", "gpu", {})]
    found = list(application_requests([new, *changed], "rm"))
    assert [(len(one.new), len(one.updates)) for one in found] == [(1, 0), (0, 2)]
    first, second = found[1].updates
    assert (first.applicationID, first.partitionName, dict(first.tags)) == (
        "app",
        "default",
        {"a": "1"},
    )
    assert (second.applicationID, second.partitionName, dict(second.tags)) == ("b", "gpu", {})


def test_the_end_of_a_sync_stands_behind_its_nodes() -> None:
    news: list[NodeReport | SyncComplete] = [
        NodeReport("n1", NodeAction.CREATE_DRAIN, capacity={"vcore": 5}),
        SyncComplete(1, 2, 3, 4),
        NodeReport("n2", NodeAction.CREATE_DRAIN),
    ]
    found = list(node_requests(news, "rm"))
    assert [[node.nodeID for node in one.nodes] for one in found] == [["n1"], ["n2"]]
    assert (found[0].syncComplete.nodes, found[0].syncComplete.asks) == (1, 4)
    assert not found[1].HasField("syncComplete")


def test_nothing_is_no_message() -> None:
    assert list(allocation_requests([], "rm")) == list(node_requests([], "rm")) == []
