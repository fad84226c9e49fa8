"""A real cluster's latency-sensitive pods claim their share from best-effort pods: no rule is violated, no ask is missed."""

from tests.realdata.claims import KINDS, Claims


def test_claims_of_a_real_cluster() -> None:
    """One run on the whole trace, with the invariants checked at its end. Because it takes a minute, the checks share one test."""
    claims = Claims()
    claims.fill()
    claims.claim()
    check_that_the_cluster_was_full(claims)
    check_that_no_rule_is_broken(claims)
    check_that_every_decision_is_fulfilled(claims)
    check_that_their_queue_stays_within_its_guarantee(claims)
    check_that_nobody_waits_who_could_claim(claims)


def check_that_the_cluster_was_full(claims: Claims) -> None:
    """Assert that repeated best-effort pods took nearly every GPU."""
    assert claims.report.filled > 7_000
    assert claims.report.asked == 4_647


def check_that_no_rule_is_broken(claims: Claims) -> None:
    """Assert that no plan was dropped, no pod went twice, only best-effort pods went, and their queue keeps its guarantee."""
    assert claims.report.broken == []
    assert claims.report.victims
    used, least = claims.usage("root.be"), claims.guaranteed["root.be"]
    assert all(used[kind] >= least[kind] for kind in KINDS)


def check_that_every_decision_is_fulfilled(claims: Claims) -> None:
    """Assert that each claim ended with its pod on the node that was held for it, because releases are confirmed at once."""
    report = claims.report
    assert set(report.ends) == {"fulfilled"}
    assert report.ends["fulfilled"] == sum(report.claims.values()) == len(report.claimed)


def check_that_their_queue_stays_within_its_guarantee(claims: Claims) -> None:
    """Assert that claims brought the queue up to its guarantee only; here it asks for no more."""
    used, least = claims.usage("root.ls"), claims.guaranteed["root.ls"]
    assert all(used[kind] <= least[kind] for kind in KINDS)


def check_that_nobody_waits_who_could_claim(claims: Claims) -> None:
    """Assert that a search without shortcuts of every node finds no allowed claim for the asks that wait."""
    assert list(claims.missed()) == []
