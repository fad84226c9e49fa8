"""A real cluster's latency-sensitive pods claim their share from best-effort pods: no rule is violated, no ask is missed."""

import pytest

from tests.realdata.claims import KINDS, Claims


@pytest.fixture(scope="module")
def claims() -> Claims:
    """Provide the finished run on the whole trace, with the invariants checked at the end."""
    found = Claims()
    found.fill()
    found.claim()
    return found


def test_the_cluster_was_full(claims: Claims) -> None:
    """Repeated best-effort pods take nearly every GPU."""
    assert claims.report.filled > 7_000
    assert claims.report.asked == 4_647


def test_no_rule_is_broken(claims: Claims) -> None:
    """No plan was dropped, nobody went twice, only best-effort pods went, and their queue keeps its guarantee."""
    assert claims.report.broken == []
    assert claims.report.victims
    used, least = claims.usage("root.be"), claims.guaranteed["root.be"]
    assert all(used[kind] >= least[kind] for kind in KINDS)


def test_every_decision_is_fulfilled(claims: Claims) -> None:
    """Releases are confirmed at once, so that each claim ends with its pod on the node that was held for it."""
    report = claims.report
    assert set(report.ends) == {"fulfilled"}
    assert report.ends["fulfilled"] == sum(report.claims.values()) == len(report.claimed)


def test_their_queue_stays_within_its_guarantee(claims: Claims) -> None:
    """Claims only bring a queue up to what it is guaranteed; here it asks for no more."""
    used, least = claims.usage("root.ls"), claims.guaranteed["root.ls"]
    assert all(used[kind] <= least[kind] for kind in KINDS)


def test_nobody_waits_who_could_claim(claims: Claims) -> None:
    """A plain look at every node, by hand, finds no allowed claim for the asks that wait."""
    assert list(claims.missed()) == []
