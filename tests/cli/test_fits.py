"""The output about how well asks fit together on nodes."""

from evenhand.v1 import explain_pb2
from evenhand_cli.render.fits import most_limits


def test_the_row_of_a_gang_with_several_limits_is_the_tightest_as_in_its_sentence() -> None:
    looser = explain_pb2.LimitFit(kind="queue", name="root.p.a", members=3)
    tightest = explain_pb2.LimitFit(kind="queue", name="root.p", members=0)
    fit = explain_pb2.GroupFit(gang=True, limits=[looser, tightest])
    assert list(most_limits(fit, full=False)) == [tightest]
    assert list(most_limits(fit, full=True)) == [looser, tightest]


def test_the_only_limit_of_a_gang_is_told_by_its_sentence_alone() -> None:
    fit = explain_pb2.GroupFit(gang=True, limits=[explain_pb2.LimitFit(kind="queue", members=2)])
    assert not most_limits(fit, full=False)
