"""The page of a tenant: the usage of the queue, its entitlement, and the queues that may take capacity from it."""

from dataclasses import replace

import pytest

from evenhand.v1 import inspect_pb2
from evenhand_cli.faults import Fault
from evenhand_console.query import Query, query_of
from evenhand_console.views import tenant
from tests.console import replies


def _query(**given: str) -> Query:
    return query_of(tenant.VIEW.path, tenant.VIEW.parameters, given.items())


def test_usage_above_the_entitlement_may_be_claimed_and_the_rest_is_safe() -> None:
    found = replies.load(tenant.Read, "tenant")
    batch, shop = found.tree.root.children
    batch.guaranteed["vcore"] = 6000
    shop.guaranteed["vcore"], shop.pending["vcore"] = shop.usage["vcore"] + 1000, 2000
    shop.promised.clear()
    page = tenant.shape(found, _query(queue="root.batch"))
    vcore = next(one for one in page.shares if one.numbers.kind == "vcore")
    assert (vcore.safe, vcore.at_risk) == (6000, batch.usage["vcore"] - 6000)
    assert vcore.at_risk > 0
    assert [(one.path, one.lacks) for one in page.claimants] == [("root.shop", (("vcore", 1000),))]
    assert page.applications is not None
    assert [one.application_id for one in page.applications.rows] == ["film"]
    assert [(one.queue, one.victims) for one in page.taken] == [("root.shop", 8)]


def test_the_smallest_max_on_the_path_is_the_limit() -> None:
    found = replies.load(tenant.Read, "tenant")
    found.tree.root.max["vcore"] = 9000
    found.tree.root.children[0].max["vcore"] = 12_000
    page = tenant.shape(found, _query(queue="root.batch"))
    assert next(one for one in page.shares if one.numbers.kind == "vcore").limit == 9000
    assert next(one for one in page.shares if one.numbers.kind == "pods").limit is not None


def test_a_role_that_sees_one_queue_needs_no_choice() -> None:
    found = replies.load(tenant.Read, "tenant")
    info = inspect_pb2.ServerInfoResponse(visible_queue="root.batch")
    page = tenant.shape(replace(found, info=info), _query())
    assert page.queue is not None
    assert page.queue.path == "root.batch"


def test_without_a_queue_there_is_a_choice_and_an_unknown_one_is_a_fault() -> None:
    found = replace(replies.load(tenant.Read, "tenant"), explained=None)
    page = tenant.shape(found, _query())
    assert page.queue is None
    assert page.choices == ("root", "root.batch", "root.shop")
    with pytest.raises(Fault):
        tenant.shape(replies.load(tenant.Read, "tenant"), _query(queue="root.btach"))
