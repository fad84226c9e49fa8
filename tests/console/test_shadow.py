"""The page of the shadow: differences alone, and the sums of both sides."""

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import inspect_pb2
from evenhand_console.query import Query, query_of
from evenhand_console.views import shadow
from tests.console import replies


def _query(**given: str) -> Query:
    return query_of(shadow.VIEW.path, shadow.VIEW.parameters, given.items())


def _found() -> shadow.Read:
    live = pb.ShadowChoice(policy="guaranteed", node_id="n1", victims=[pb.Victim(name="a/x")])
    other = pb.ShadowChoice(policy="guaranteed", node_id="n2", victims=[pb.Victim(name="b/y")])
    decided = [
        pb.ShadowDecision(name="1", difference=pb.SHADOW_DIFFERENCE_SAME, live=live, shadow=live),
        pb.ShadowDecision(
            name="2", difference=pb.SHADOW_DIFFERENCE_OTHER_NODE, live=live, shadow=other
        ),
        pb.ShadowDecision(
            name="3",
            difference=pb.SHADOW_DIFFERENCE_ONLY_LIVE,
            live=live,
            law="fence",
            because="it is outside",
        ),
    ]
    sums = [
        pb.ShadowSum(policy="guaranteed", decisions=3, victims=3, lost_millicore_ms=1_000_000),
        pb.ShadowSum(policy="guaranteed", shadow=True, decisions=2, victims=2),
    ]
    shadows = [pb.Shadow(partition="default", settings={"delay": "1s"}, sums=sums)]
    return shadow.Read(inspect_pb2.ServerInfoResponse(now_ms=9), decided, shadows)


def test_only_differences_are_listed_and_the_others_counted() -> None:
    page = shadow.shape(_found(), _query())
    assert [(one.name, one.difference) for one in page.part.rows] == [
        ("3", "only-live"),
        ("2", "other-node"),
    ]
    assert page.alike == 1
    first, second = page.part.rows
    assert (first.shadow, first.why) == ("-", "fence: it is outside")
    assert (second.live, second.shadow) == ("1 victim on n1 (a/x)", "1 victim on n2 (b/y)")


def test_one_kind_of_difference_is_chosen() -> None:
    page = shadow.shape(_found(), _query(difference="other-node"))
    assert [one.name for one in page.part.rows] == ["2"]
    assert page.differences == ("all", "only-live", "other-node")


def test_both_sides_have_sums() -> None:
    (one,) = shadow.shape(_found(), _query()).shadows
    assert [(each.side, each.victims) for each in one.sums] == [("live", 3), ("shadow", 2)]
    assert one.settings == (("delay", "1s"),)


def test_a_core_without_a_shadow_has_a_page() -> None:
    page = shadow.shape(replies.load(shadow.Read, "shadow"), _query())
    assert (page.shadows, page.part.rows) == ((), ())
