"""The values that views show, as pure functions of recorded replies and of the state in the address."""

from dataclasses import replace

import pytest

from evenhand.v1 import decisions_pb2, explain_pb2, history_pb2, inspect_pb2
from evenhand_cli.faults import Fault
from evenhand_console.bars import FULL, bar
from evenhand_console.lines import chart
from evenhand_console.query import Query, query_of
from evenhand_console.queue_numbers import at_path, lending, numbers
from evenhand_console.timelines import LANE, LANES_MAX, WIDTH, Span, timeline
from evenhand_console.views import (
    decision,
    decisions,
    nodes,
    overview,
    queue,
    queues,
    timers,
    waiting,
    why,
)
from tests.console import replies, samples


def _query(view: object, **given: str) -> Query:
    return query_of(view.path, view.parameters, given.items())  # type: ignore[attr-defined]


def test_the_overview_names_what_is_due() -> None:
    recorded = replies.load(overview.Read, "overview")
    found = replace(recorded, decisions=replies.load(queue.Read, "queue").decisions)
    found.tree.root.children[0].quota_due_ms = 1
    page = overview.shape(found, _query(overview.VIEW))
    assert page.due[0].queue == found.tree.root.children[0].path
    assert len(page.due[1:]) == len(found.decisions) > 0
    assert [one.at_ms for one in page.due[1:]] == sorted(one.expires_ms for one in found.decisions)
    assert page.counts.waiting_asks > 0
    assert page.changes is not None
    assert [one.number for one in page.changes] == sorted(
        (one.number for one in page.changes), reverse=True
    )


def test_a_caller_without_events_gets_an_overview() -> None:
    found = replies.load(overview.Read, "overview")
    less = overview.Read(found.info, found.partitions, found.tree, None, found.decisions, None)
    assert overview.shape(less, _query(overview.VIEW)).changes is None


def test_queues_with_an_unmet_guarantee_come_first() -> None:
    found = replies.load(queues.Read, "queues")
    child = found.tree.root.children.add(name="zoo", path="root.zoo", leaf=True, asks_waiting=1)
    child.guaranteed["vcore"], child.pending["vcore"] = 4000, 3000
    page = queues.shape(found, _query(queues.VIEW))
    assert [row.path for row in page.part.rows] == ["root", "root.zoo", "root.batch", "root.shop"]
    assert [(row.path, row.unmet) for row in page.unmet] == [("root.zoo", (("vcore", 3000),))]


def test_the_tree_holds_as_many_levels_as_the_address_says() -> None:
    found = replies.load(queues.Read, "queues")
    page = queues.shape(found, _query(queues.VIEW, depth="1"))
    assert [row.level for row in page.part.rows] == [1, 2, 2]
    below = queues.shape(found, _query(queues.VIEW, under="root.shop", depth="1"))
    assert [row.path for row in below.part.rows] == ["root.shop"]
    assert below.above == ("root",)


def test_a_long_tree_comes_in_pages() -> None:
    found = replies.load(queues.Read, "queues")
    for number in range(queues.ROWS_MAX):
        found.tree.root.children.add(name=f"q{number}", path=f"root.q{number}", leaf=True)
    first = queues.shape(found, _query(queues.VIEW))
    last = queues.shape(found, _query(queues.VIEW, start=str(first.part.later)))
    assert (len(first.part.rows), first.part.earlier) == (queues.ROWS_MAX, None)
    assert (len(last.part.rows), last.part.earlier, last.part.later) == (3, 0, None)
    assert not {row.path for row in first.part.rows} & {row.path for row in last.part.rows}


def test_an_unknown_queue_names_near_ones() -> None:
    found = replies.load(queues.Read, "queues")
    with pytest.raises(Fault) as raised:
        at_path(found.tree.root, {}, "root.shpo")
    assert "root.shop" in raised.value.advice


def test_the_page_of_a_queue_has_what_it_took_and_its_last_hour() -> None:
    found = replies.load(queue.Read, "queue")
    page = queue.shape(found, _query(queue.VIEW, queue="root.shop"))
    assert [(one.other, one.victims) for one in page.took] == [("root.batch", 8)]
    assert page.gave == ()
    assert page.charts is not None
    assert {one.kind for one in page.charts} >= {"vcore"}
    assert page.settings
    assert page.above == ("root",)


def test_a_core_without_a_history_has_no_lines() -> None:
    found = replies.load(queue.Read, "queue")
    none = queue.Read(found.tree, found.partitions, found.settings, None, found.decisions, None)
    page = queue.shape(none, _query(queue.VIEW, queue="root.shop"))
    assert (page.charts, page.waits, page.took) == (None, None, ())


def test_a_waiting_pod_has_the_node_that_comes_nearest_and_who_runs_there() -> None:
    found = replies.load(why.Read, "why")
    page = why.shape(found, _query(why.VIEW, key="any"))
    assert (page.kind, page.name) == ("waiting ask", found.answer.name)
    (node,) = page.blockers
    assert node.lacks == dict(found.answer.waiting.nearest_missing)
    assert {kind: node.wanted[kind] - node.free[kind] for kind in node.lacks} == node.lacks
    assert {one.key for one in node.holders} == {one.allocation_key for one in found.on_node or ()}
    assert page.steps == tuple(found.answer.waiting.next_steps)
    assert "over-guarantee" in page.preemption


def test_a_max_in_the_way_names_the_applications_and_queues_that_use_it() -> None:
    found = replies.load(why.Read, "why")
    level = found.answer.waiting.levels[0]
    level.max["vcore"], level.head_room["vcore"] = 9000, 1000
    level.short_types.append("vcore")
    above = found.answer.waiting.levels[1]
    above.max["vcore"], above.blocks = 9000, True
    apps = [
        inspect_pb2.Application(application_id=name, queue="root.shop", usage={"vcore": used})
        for name, used in (("small", 1), ("large", 7000), ("idle", 0))
    ]
    tree = replies.load(queues.Read, "queues").tree
    page = why.shape(replace(found, applications=apps, tree=tree), _query(why.VIEW, key="any"))
    own, root, _ = page.blockers
    assert (own.wanted, own.free, own.lacks) == ({"vcore": 2000}, {"vcore": 1000}, {"vcore": 1000})
    assert [one.name for one in own.holders] == ["large", "small"]
    assert [one.name for one in root.holders] == ["root.batch", "root.shop"]


def test_a_gang_lacks_what_all_its_members_lack() -> None:
    found = replies.load(why.Read, "why")
    fit = found.answer.waiting.gang
    fit.name, fit.size, fit.members, fit.gang = "gang train", 4, 4, True
    fit.rest["vcore"] = 8000
    limit = fit.limits.add(kind="firm", name="root.shop", queue="root.shop", members=1)
    limit.missing["vcore"] = 5000
    node = fit.nodes.add(node_id="node-1", members=1, rest=2)
    node.free["vcore"], node.missing["vcore"] = 1000, 3000
    page = why.shape(found, _query(why.VIEW, key="train"))
    assert (page.kind, page.gang) == ("gang", "train: 4 needed, 4 wait")
    guarantee, nearest = page.blockers
    assert (guarantee.free, guarantee.rule) == ({"vcore": 3000}, why.FIRM)
    assert (nearest.wanted, nearest.lacks) == ({"vcore": 4000}, {"vcore": 3000})


def test_a_node_that_is_kept_for_another_ask_says_for_which_and_until_when() -> None:
    found = replies.load(why.Read, "why")
    found.answer.waiting.kept_off_by.add(node_id="n", allocation_key="k", name="a/b", until_ms=7)
    kept = why.shape(found, _query(why.VIEW, key="any")).blockers[-1]
    assert (kept.holders[0].name, kept.until_ms, kept.rule) == ("a/b", 7, why.RESERVED)


def test_a_name_of_nothing_names_near_ones_and_a_name_of_several_names_all() -> None:
    pods = [inspect_pb2.Allocation(allocation_key=f"{at}", name=f"{at}/web") for at in "ab"]
    answer = explain_pb2.ExplainResponse(kind=explain_pb2.SUBJECT_KIND_UNKNOWN)
    found = why.Read(answer, pods, None, (), ())
    with pytest.raises(Fault) as several:
        why.shape(found, _query(why.VIEW, key="web"))
    assert "a/web or b/web" in several.value.advice
    with pytest.raises(Fault) as near:
        why.shape(found, _query(why.VIEW, key="a/wbe"))
    assert "a/web" in near.value.advice


def test_a_pod_that_has_ended_shows_its_waits_its_node_and_its_end() -> None:
    answer = explain_pb2.ExplainResponse(kind=explain_pb2.SUBJECT_KIND_UNKNOWN)
    past = history_pb2.GetPodHistoryResponse(pods=[samples.past_pod("a/web")])
    found = why.Read(answer, (), None, (), (), past)
    page = why.shape(found, _query(why.VIEW, key="a/web"))
    (ask,) = page.past
    assert (page.kind, page.name) == ("ended pod", "a/web")
    assert (ask.waits, ask.ran_ms, ask.end) == ((("a/web", 5_000),), 60_000, "was evicted")
    assert page.lines == ("It waited for 5.0 s, ran for 1 m 00 s on a/web, and was evicted.",)


def _many_waiting() -> waiting.Read:
    recorded = replies.load(waiting.Read, "waiting")
    made = [
        ("a", "root.x.one", "ada", "Running", {"no-node": 3, "queue-limit": 2}),
        ("b", "root.x.two", "ada", "Accepted", {"queue-limit": 4}),
        ("c", "root.y", "bob", "Running", {"no-node": 1}),
        ("idle", "root.y", "bob", "Running", {}),
    ]
    applications = [
        inspect_pb2.Application(
            application_id=name,
            queue=path,
            user=user,
            state=state,
            asks_waiting=sum(codes.values()),
            waiting_reasons=[
                inspect_pb2.ReasonCount(code=code, count=count) for code, count in codes.items()
            ],
        )
        for name, path, user, state, codes in made
    ]
    pods = [
        inspect_pb2.Allocation(
            allocation_key=f"{name}-{code}-{at}", application_id=name, waiting_code=code
        )
        for name, _, _, _, codes in made
        for code, count in codes.items()
        for at in range(count)
    ]
    return replace(recorded, applications=applications, pods=pods)


def test_the_recorded_pods_wait_with_their_reasons() -> None:
    found = replies.load(waiting.Read, "waiting")
    page = waiting.shape(found, _query(waiting.VIEW))
    assert page.part is not None
    (shop,) = page.part.rows
    assert (page.total, shop.application_id, shop.queue) == (2, "shop", "root.shop")
    assert {one.state for one in shop.pods} == {"waiting", "pledged"}
    assert all(one.code == "no-node" and one.waited_ms > 0 for one in shop.pods)


def test_each_facet_counts_under_the_choices_of_the_others() -> None:
    page = waiting.shape(_many_waiting(), _query(waiting.VIEW, user="ada", reason="queue-limit"))
    facets = {one.name: [(each.value, each.count) for each in one.options] for one in page.facets}
    assert page.total == 6
    assert facets["queue"] == [("root.x.two", 4), ("root.x.one", 2)]
    assert facets["user"] == [("ada", 6)]
    assert facets["reason"] == [("queue-limit", 6), ("no-node", 3)]
    assert facets["state"] == [("accepted", 4), ("running", 2)]


def test_a_queue_includes_the_queues_below_it() -> None:
    page = waiting.shape(_many_waiting(), _query(waiting.VIEW, queue="root.x"))
    assert page.part is not None
    assert [one.application_id for one in page.part.rows] == ["a", "b"]
    assert next(one for one in page.facets[0].options if one.chosen).count == 9


def test_a_reason_and_an_application_narrow_the_pods() -> None:
    query = _query(waiting.VIEW, application="a", reason="queue-limit")
    page = waiting.shape(_many_waiting(), query)
    assert page.pods is not None
    assert [one.key for one in page.pods.rows] == ["a-queue-limit-0", "a-queue-limit-1"]
    assert page.total == 2


def test_pods_whose_reasons_the_core_did_not_count_have_a_facet() -> None:
    found = _many_waiting()
    del found.applications[0].waiting_reasons[:]
    page = waiting.shape(found, _query(waiting.VIEW))
    assert ("not-counted", 5) in [(one.value, one.count) for one in page.facets[3].options]


def test_decisions_come_latest_first_with_victims_rule_and_lost_work() -> None:
    found = replies.load(decisions.Read, "decisions")
    page = decisions.shape(found, _query(decisions.VIEW))
    recorded = [one.decision_id for one in found.decisions]
    assert [one.decision_id for one in page.part.rows] == recorded[::-1]
    one = page.part.rows[0]
    assert (one.policy, one.queue, one.of) == ("guaranteed", "root.shop", ("root.batch",))
    assert one.queue_exists
    assert one.beneficiary_key == found.decisions[-1].beneficiaries[0].allocation_key
    assert "G4" in one.because[0]
    assert "core" in one.lost
    assert page.timeline is not None
    assert len(page.timeline.spans) == len(recorded)
    assert not decisions.shape(found, _query(decisions.VIEW, policy="quota")).part.rows


def test_a_decision_says_who_was_protected_and_by_which_rule() -> None:
    found = replies.load(decision.Read, "decision")
    assert found.answer is not None
    found.answer.decision.spared.add(law="below-guarantee", rule="rule (G4)", queue="q", count=3)
    found.answer.decision.levels.add(queue="root.secret", hidden=True)
    page = decision.shape(found, _query(decision.VIEW, id="any"))
    before = sum(one.count for one in found.answer.decision.spared)
    assert page.protected == before >= 3
    assert [one.queue for one in page.levels if one.queue == "root.secret"] == []
    assert page.levels
    assert page.victims is not None
    assert page.victims.total == len(found.answer.decision.victims) > 0
    assert page.reasons[0][1] == page.victims.total
    assert "guarantee" in page.kept_by


def test_a_decision_of_the_past_is_from_the_history() -> None:
    found = replies.load(decision.Read, "decision")
    assert found.answer is not None
    past = history_pb2.GetPastDecisionResponse(decision=found.answer.decision)
    page = decision.shape(decision.Read(None, past), _query(decision.VIEW, id="any"))
    assert page.from_history
    assert page.decision == found.answer.decision


def test_spans_at_one_time_have_lanes_of_their_own() -> None:
    spans = [Span("a", 0, 50, "open", "1"), Span("a", 10, 20, "open", "2")]
    drawn = timeline([*spans, Span("a", 60, 100, "open", "3"), Span("b", 0, 1, "x", "4")], 100)
    assert drawn is not None
    first, second, third, other = drawn.spans
    assert (first.y, second.y, third.y) == (0, LANE, 0)
    assert other.y > second.y
    assert all(one.x >= 0 and one.x + one.width <= WIDTH for one in drawn.spans)
    assert [(one.name, one.count) for one in drawn.groups] == [("a", 3), ("b", 1)]
    many = timeline([Span("a", 0, 9, "open", str(at)) for at in range(LANES_MAX + 5)], 9)
    assert many is not None
    assert len({one.y for one in many.spans}) == LANES_MAX
    assert timeline([], 0) is None


def test_timers_come_by_their_instant_and_say_why_a_max_is_not_enforced() -> None:
    found = replies.load(timers.Read, "timers")
    now = found.tree.taken_at_ms
    batch, shop = found.tree.root.children
    batch.not_enforced, batch.over_max["vcore"] = "no delay is set", 1000
    shop.quota_due_ms = now + 5000
    first, second = timers.shape(found, _query(timers.VIEW)).timers
    assert (first.queue, first.in_ms) == ("root.shop", 5000)
    assert (second.queue, second.why_not) == ("root.batch", "no delay is set")
    assert second.over == {"vcore": 1000}


def test_a_kept_node_and_a_promise_are_told_apart() -> None:
    found = replies.load(timers.Read, "timers")
    page = timers.shape(found, _query(timers.VIEW))
    assert page.kept is not None
    (kept,) = page.kept
    assert (kept.queue, kept.until_ms - page.now_ms) == ("root.shop", kept.in_ms)
    assert (page.promises.rows, page.reservations) == ((), 1)
    found.kept[0].waiting.reservation.decision_id = "g-1"
    decided = replies.load(decision.Read, "decision").answer
    assert decided is not None
    decided.decision.state = decisions_pb2.DECISION_STATE_ORDERED
    page = timers.shape(replace(found, decisions=[decided.decision]), _query(timers.VIEW))
    assert page.kept == ()
    (promise,) = page.promises.rows
    assert (promise.decision_id, promise.state) == (decided.decision.decision_id, "ordered")
    assert promise.amounts == decided.decision.beneficiaries[0].resources


def test_a_viewer_sees_no_kept_nodes() -> None:
    found = replace(replies.load(timers.Read, "timers"), nodes=None, kept=())
    assert timers.shape(found, _query(timers.VIEW)).kept is None


def test_free_capacity_where_an_average_pod_does_not_fit_is_fragmented() -> None:
    recorded = replies.load(nodes.Read, "nodes")
    made = [
        ("full", True, {"vcore": 0, "memory": 9}, 2, "a"),
        ("small", True, {"vcore": 500, "memory": 90}, 1, "a"),
        ("large", True, {"vcore": 3000, "memory": 90}, 1, "b"),
        ("drained", False, {"vcore": 7000, "memory": 90}, 0, "b"),
    ]
    found = replace(
        recorded,
        nodes=[
            inspect_pb2.Node(
                node_id=name,
                schedulable=ready,
                capacity={"vcore": 8000, "memory": 100},
                usage={"vcore": 1000 * pods, "memory": 10 * pods},
                available=free,
                allocations=pods,
                labels={nodes.ZONE: zone, "name": name},
            )
            for name, ready, free, pods, zone in made
        ],
    )
    page = nodes.shape(found, _query(nodes.VIEW))
    assert (page.by, page.average) == (nodes.ZONE, {"vcore": 1000, "memory": 10})
    whole, a, b = page.sums
    assert (whole.free, whole.largest, whole.fragmented, whole.draining) == (3500, 3000, 500, 1)
    assert ((a.name, a.fragmented), (b.name, b.free)) == (("a", 500), ("b", 3000))
    assert [one.node_id for one in page.groups[0].tiles] == ["full", "small"]
    assert "name" not in page.labels
    memory = nodes.shape(found, _query(nodes.VIEW, resource="memory", by=nodes.NO_GROUP))
    assert (memory.kind, len(memory.groups), memory.sums[0].fragmented) == ("memory", 1, 99)


def test_the_recorded_nodes_have_a_tile_each() -> None:
    found = replies.load(nodes.Read, "nodes")
    page = nodes.shape(found, _query(nodes.VIEW))
    shown = [one.node_id for group in page.groups for one in group.tiles]
    assert sorted(shown) == sorted(one.node_id for one in found.nodes)
    assert page.sums[0].pledged == sum(one.pledged.get("vcore", 0) for one in found.nodes)


def test_what_is_lent_is_at_most_what_others_borrow() -> None:
    a = inspect_pb2.Queue(path="root.a", guaranteed={"vcore": 6000}, usage={"vcore": 1000})
    b = inspect_pb2.Queue(path="root.b", guaranteed={"vcore": 2000}, usage={"vcore": 1000})
    c = inspect_pb2.Queue(path="root.c", usage={"vcore": 3000})
    lent = lending([a, b, c])
    assert (lent["root.a"]["vcore"], lent["root.b"]["vcore"]) == (2500, 500)
    assert lending([a, b])["root.a"]["vcore"] == 0


def test_promised_capacity_counts_as_held() -> None:
    root = inspect_pb2.Queue(
        path="root",
        guaranteed={"vcore": 4000},
        usage={"vcore": 2000},
        promised={"vcore": 1000},
        pending={"vcore": 9000},
    )
    assert numbers(at_path(root, {}, ""), "vcore").unmet == 1000


def test_a_bar_says_in_words_what_it_shows() -> None:
    drawn = bar("vcore", {"used": 2000, "promised": 1000, "guaranteed": 4000}, 8000)
    assert (drawn.used, drawn.promised, drawn.marks[0].at) == (FULL // 4, FULL // 8, FULL // 2)
    assert drawn.text == "cores: 2 used, 1 promised, 4 guaranteed"
    assert bar("vcore", {"used": 1}, 1_000_000).used > 0


def test_a_line_has_a_gap_where_nothing_is_known() -> None:
    lines = chart([0, 1, 2, 3], [("usage", [1, None, 2, 4])]).lines
    assert [len(piece.split()) for piece in lines[0].pieces] == [1, 2]


def test_an_address_holds_the_state_of_a_page() -> None:
    query = _query(queues.VIEW, under="root.a b&c", nonsense="1", resource="x" * 2000)
    assert query["resource"] == ""
    assert query.href() == "/queues?under=root.a+b%26c"
    assert query.href(under="", depth="5") == "/queues?depth=5"
    assert query.live == "/live/queues?under=root.a+b%26c"
