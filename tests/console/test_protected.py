"""The page of protected pods: which opted out of preemption, by level and queue."""

from dataclasses import replace

from evenhand.v1 import inspect_pb2
from evenhand_console.query import Query, query_of
from evenhand_console.views import protected
from tests.console import replies, samples
from tests.console.serving import console

LEVELS = {"a": "normal", "b": "prefer-not", "c": "firm", "d": "untouchable", "e": "prefer-not"}
QUEUES = {"a": "root.x", "b": "root.x.one", "c": "root.x.one", "d": "root.y", "e": "root.y"}


def _query(**given: str) -> Query:
    return query_of(protected.VIEW.path, protected.VIEW.parameters, given.items())


def _found() -> protected.Read:
    recorded = replies.load(protected.Read, "protected")
    pods = [
        inspect_pb2.Allocation(
            allocation_key=key, queue=QUEUES[key], protection=level, may_be_preempted=True
        )
        for key, level in LEVELS.items()
    ]
    opted_out = inspect_pb2.Allocation(allocation_key="f", queue="root.y", protection="normal")
    return replace(recorded, pods=[*pods, opted_out])


def _keys(page: protected.Page) -> list[str]:
    return [one.key for one in page.part.rows]


def test_protected_pods_come_by_level_and_normal_ones_are_left_out() -> None:
    """A pod whose policy says that it may not be preempted has opted out, too."""
    page = protected.shape(_found(), _query())
    assert _keys(page) == ["d", "c", "b", "e", "f"]
    assert page.running == 6
    assert page.part.rows[-1].protection == "prefer-not"


def test_each_facet_counts_under_the_choice_of_the_other() -> None:
    page = protected.shape(_found(), _query(protection="prefer-not", queue="root.x"))
    assert _keys(page) == ["b"]
    facets = {one.name: [(each.value, each.count) for each in one.options] for one in page.facets}
    assert facets["protection"] == [("firm", 1), ("prefer-not", 1)]
    assert facets["queue"] == [("root.y", 2), ("root.x.one", 1), ("root.x", 1)]


def test_a_long_list_comes_in_pages() -> None:
    found = _found()
    pod = found.pods[1]
    page = protected.shape(replace(found, pods=[pod] * (protected.ROWS_MAX + 1)), _query(start="1"))
    assert (len(page.part.rows), page.part.total) == (protected.ROWS_MAX, protected.ROWS_MAX + 1)


def test_a_cluster_without_protected_pods_says_so() -> None:
    fake = samples.core()
    fake.answers["ListAllocations"] = inspect_pb2.ListAllocationsResponse()
    with console(fake) as client:
        assert "No running pod is protected" in client.get("/protected").text


def test_the_page_names_the_partition_that_the_core_shows_without_a_choice() -> None:
    listed = [inspect_pb2.Partition(name=name) for name in ("arm", "default")]
    found = replace(_found(), partitions=listed)
    assert protected.shape(found, _query()).partition == "default"
    assert protected.shape(found, _query(partition="arm")).partition == "arm"
