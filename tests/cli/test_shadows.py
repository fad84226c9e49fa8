"""`evenhand decisions --shadow` as text and as JSON, and the lines of `explain` about the shadow."""

from collections.abc import Iterator

import pytest

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import inspect_pb2
from tests.cli import decided, samples
from tests.cli.fake import FakeCore, running
from tests.cli.run import evenhand
from tests.cli.samples import T0, cores_and_gib

NOW = T0 + 95_000


def choice(*names: str, node: str = "node-a", **more: object) -> pb.ShadowChoice:
    return pb.ShadowChoice(
        policy="guaranteed",
        node_id=node,
        victims=[decided.victim(name) for name in names],
        **more,  # type: ignore[arg-type]
    )


def decision(key: str, difference: pb.ShadowDifference, **more: object) -> pb.ShadowDecision:
    return pb.ShadowDecision(
        partition="default",
        allocation_key=f"uid-of-{key}",
        name=f"lab/{key}",
        queue="root.research",
        resources=cores_and_gib(4, 8),
        at_ms=T0,
        difference=difference,
        **more,  # type: ignore[arg-type]
    )


def answers() -> list[pb.ListShadowDecisionsResponse]:
    shadow = pb.Shadow(
        partition="default",
        since_ms=T0,
        settings={"entitlement": "proportional"},
        sums=[
            pb.ShadowSum(policy="guaranteed", decisions=2, victims=3, lost_millicore_ms=7_000_000),
            pb.ShadowSum(policy="guaranteed", shadow=True, decisions=3, victims=5),
        ],
        counts=[pb.ShadowCount(difference=pb.SHADOW_DIFFERENCE_ONLY_SHADOW, count=4)],
    )
    same = decision(
        "one", pb.SHADOW_DIFFERENCE_SAME, live=choice("count-1"), shadow=choice("count-1")
    )
    other = decision(
        "two",
        pb.SHADOW_DIFFERENCE_OTHER_NODE,
        live=choice("count-1", "count-2", "count-3"),
        shadow=choice(node="node-b"),
    )
    alone = decision(
        "three",
        pb.SHADOW_DIFFERENCE_ONLY_SHADOW,
        shadow=choice("count-4", victims_elsewhere=1),
        law="policy-off",
        because="policy guaranteed is not on",
    )
    first = pb.ListShadowDecisionsResponse(
        decisions=[same],
        shadows=[shadow],
        next_page_token="1",  # noqa: S106 - a page, not a secret
        taken_at_ms=NOW,
    )
    second = pb.ListShadowDecisionsResponse(
        decisions=[other, alone], shadows=[shadow], taken_at_ms=NOW
    )
    return [first, second]


@pytest.fixture
def core() -> Iterator[FakeCore]:
    prepared = FakeCore(
        ListShadowDecisions=answers(),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=samples.queue_tree()),
    )
    with running(prepared) as started:
        yield started


def test_a_line_for_each_ask(core: FakeCore) -> None:
    ended = evenhand("decisions", "--shadow", "--core", core.address, width=220)
    assert ended.code == 0
    assert "same" in ended.words("lab/one")
    two = " ".join(ended.words("lab/two"))
    assert "3 victims on node-a (crunch/count-1, crunch/count-2, ...)" in two
    assert "capacity on node-b other-node" in two
    three = " ".join(ended.words("lab/three"))
    assert "- 2 victims on node-a (crunch/count-4, ...) only-shadow" in three
    assert three.endswith("policy-off: policy guaranteed is not on")
    assert "3 asks, 2 of them differ" in ended.out
    assert "entitlement proportional" in ended.out
    assert "only-shadow 4" in ended.out
    sums = [line.split() for line in ended.out.splitlines() if line.startswith("guaranteed")]
    assert [line[1:4] for line in sums] == [["live", "2", "3"], ["shadow", "3", "5"]]


def test_many_asks_that_differ_alike_share_a_line() -> None:
    lost = [
        decision(
            f"pod-{at}",
            pb.SHADOW_DIFFERENCE_ONLY_LIVE,
            live=choice(f"count-{at}", f"more-{at % 3}"),
        )
        for at in range(40)
    ]
    shadow = pb.Shadow(partition="default", since_ms=T0)
    answer = pb.ListShadowDecisionsResponse(decisions=lost, shadows=[shadow], taken_at_ms=NOW)
    with running(FakeCore(ListShadowDecisions=answer)) as core:
        brief = evenhand("decisions", "--shadow", "--core", core.address, width=80)
        wide = evenhand("decisions", "--shadow", "-o", "wide", "--core", core.address)
    assert " ".join(brief.words("40  ")) == (
        "40 root.research only-live 43 victims of root.batch -"
    )
    assert "lab/pod-7" not in brief.out
    assert "lab/pod-7" in wide.out


def test_as_json_it_has_every_field(core: FakeCore) -> None:
    value = evenhand("decisions", "--shadow", "--core", core.address, "-o", "json").value()
    assert len(value["decisions"]) == 3
    fields = {field.name for field in pb.ShadowDecision.DESCRIPTOR.fields}
    assert set(value["decisions"][0]) == fields
    assert value["decisions"][2]["live"] is None
    assert value["shadows"][0]["sums"][1]["shadow"] is True
    assert value["taken_at_ms"] == NOW


def test_filters_reach_the_core(core: FakeCore) -> None:
    arguments = ("--shadow", "--queue", "root.batch", "-p", "blue")
    assert evenhand("decisions", *arguments, "--core", core.address).code == 0
    wanted = [one for one in core.requests if isinstance(one, pb.ListShadowDecisionsRequest)]
    assert (wanted[-1].partition, wanted[-1].queue) == ("blue", "root.batch")


def test_without_a_shadow_it_says_how_to_have_one() -> None:
    with running(FakeCore(ListShadowDecisions=pb.ListShadowDecisionsResponse())) as core:
        ended = evenhand("decisions", "--shadow", "--core", core.address)
    assert ended.code == 0
    assert "preemption.shadow" in ended.out


def test_a_trim_is_named_as_among_decisions() -> None:
    trimmed = decision("root", pb.SHADOW_DIFFERENCE_ONLY_SHADOW, of_queue=True)
    shadow = pb.Shadow(partition="default", since_ms=T0)
    answer = pb.ListShadowDecisionsResponse(decisions=[trimmed], shadows=[shadow], taken_at_ms=NOW)
    with running(FakeCore(ListShadowDecisions=answer)) as core:
        ended = evenhand("decisions", "--shadow", "--core", core.address, width=220)
    assert ended.words("only-shadow")[:2] == ["shares", "below"]


def test_explain_has_a_part_for_the_shadow() -> None:
    answer = samples.why_it_waits("uid-of-train")
    answer.waiting.shadow.CopyFrom(pb.PreemptionVerdict(policy="guaranteed", because="1 would go"))
    with running(FakeCore(Explain=answer)) as core:
        text = evenhand("explain", "uid-of-train", "--core", core.address).out
        full = evenhand("explain", "uid-of-train", "--core", core.address, "-o", "wide").out
    assert "shadow       guaranteed can free capacity: 1 would go" in text
    assert "under the shadow settings" in full
    assert "1 would go" in full


def test_of_many_asks_only_those_that_differ_are_listed() -> None:
    alike = [
        decision(f"same-{at}", pb.SHADOW_DIFFERENCE_SAME, live=choice("a"), shadow=choice("a"))
        for at in range(11)
    ]
    alone = decision("alone", pb.SHADOW_DIFFERENCE_ONLY_SHADOW, shadow=choice("b"))
    shadow = pb.Shadow(partition="default", since_ms=T0)
    answer = pb.ListShadowDecisionsResponse(
        decisions=[*alike, alone], shadows=[shadow], taken_at_ms=NOW
    )
    with running(FakeCore(ListShadowDecisions=answer)) as core:
        ended = evenhand("decisions", "--shadow", "--core", core.address)
    assert "lab/alone" in ended.out
    assert "lab/same" not in ended.out
    assert "12 asks, 1 of them differ, those alone are listed" in ended.out
