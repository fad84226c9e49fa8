"""Preferences of pods among nodes, as the core is told of them: node affinity, affinity between pods, soft spread (design 6.15)."""

from typing import Any

import pytest

from shim_client.messages import (
    GroupPreference,
    NodePreferences,
    Placed,
    PreferredTerm,
    Requirement,
    SelectorTerm,
)
from tests.shim.objects import Item, foreign, node, pod
from tests.shim.story import Story

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def started(*items: Item, zones: str = "aabb") -> Story:
    nodes = [
        node(f"n{number}", labels={ZONE: zone, HOST: f"n{number}"})
        for number, zone in enumerate(zones, start=1)
    ]
    return Story().start(*nodes, *items).forget()


def affinity(kind: str, weight: int, labels: dict[str, str], key: str = ZONE) -> dict[str, Any]:
    """Return a spec with one preferred affinity or anti-affinity between pods."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"affinity": {kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}}}


def soft_spread(skew: int = 1, app: str = "web") -> dict[str, Any]:
    """Return a spec that asks for an even spread over the zones, and does without it if need be."""
    rule = {
        "maxSkew": skew,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"topologySpreadConstraints": [rule]}


def sent(story: Story, *items: Item) -> NodePreferences:
    """Return the preferences of the pod that the core was told of last, after these objects were seen."""
    story.forget()
    story.see(*items)
    return story.last_pod().preferences or NodePreferences()


def on(key: str, *values: str, weight: int) -> PreferredTerm:
    return PreferredTerm(weight, SelectorTerm((Requirement(key, "In", values),)))


def test_preferred_node_affinity_is_sent_as_terms_with_their_weights() -> None:
    ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    listed = [
        {"weight": 80, "preference": ssd},
        {"weight": 20, "preference": named},
        {"weight": 7, "preference": {}},
    ]
    found = sent(started(), pod("a", spec={"affinity": {"nodeAffinity": {PREFERRED: listed}}}))
    in_fields = SelectorTerm((), (Requirement("metadata.name", "In", ("n1",)),))
    assert found == NodePreferences((on("disk", "ssd", weight=80), PreferredTerm(20, in_fields)))


@pytest.mark.parametrize(("kind", "weight"), [("podAffinity", 30), ("podAntiAffinity", -30)])
def test_pods_that_prefer_their_own_kind_are_a_group_that_the_core_counts(
    kind: str, weight: int
) -> None:
    spec = affinity(kind, 30, {"app": "web"})
    story = started(pod("a", node="n1", labels={"app": "web"}, spec=spec))
    (group,) = sent(story, pod("b", labels={"app": "web"}, spec=spec)).groups
    assert (group.topology_key, group.weight) == (ZONE, weight)
    assert sent(story, pod("c", labels={"app": "web"}, spec=spec)) == NodePreferences((), (group,))
    assert not story.last_pod().rm_check, "a preference can prevent no binding"


@pytest.mark.parametrize(("skew", "weight"), [(1, -100), (4, -25), (500, -1)])
def test_a_spread_that_is_a_preference_counts_less_the_more_skew_it_allows(
    skew: int, weight: int
) -> None:
    found = sent(started(), pod("a", labels={"app": "web"}, spec=soft_spread(skew)))
    assert [(one.topology_key, one.weight) for one in found.groups] == [(ZONE, weight)]
    assert not found.terms


def test_equal_rules_make_one_group_and_other_selections_make_another() -> None:
    story = started()

    def group(name: str, app: str, spec: dict[str, Any], ns: str = "work") -> str:
        (found,) = sent(story, pod(name, ns=ns, labels={"app": app}, spec=spec)).groups
        return found.group

    web = group("a", "web", soft_spread())
    assert group("b", "web", affinity("podAntiAffinity", 5, {"app": "web"}, HOST)) == web
    assert group("c", "db", soft_spread(app="db")) != web
    assert group("d", "web", soft_spread(), ns="other") != web


def test_pods_outside_the_group_are_weights_of_their_places() -> None:
    likes = affinity("podAffinity", 30, {"app": "cache"})
    story = started(
        pod("c1", node="n1", labels={"app": "cache"}),
        pod("c2", node="n2", labels={"app": "cache"}),
        foreign("c3", "n3", labels={"app": "cache"}),
    )
    want = NodePreferences((on(ZONE, "b", weight=30), on(ZONE, "a", weight=60)))
    assert sent(story, pod("a", spec=likes)) == want


def test_a_foreign_pod_with_the_same_rule_is_outside_the_group() -> None:
    spec = soft_spread()
    story = started(foreign("f", "n3", labels={"app": "web"}, spec=spec))
    found = sent(story, pod("a", labels={"app": "web"}, spec=spec))
    assert found.terms == (on(ZONE, "b", weight=-100),)
    assert len(found.groups) == 1


def test_places_of_equal_weight_share_a_term_and_weights_that_cancel_out_are_left_out() -> None:
    apart = affinity("podAntiAffinity", 10, {"app": "noisy"}, HOST)
    near = affinity("podAffinity", 10, {"app": "cache"}, HOST)
    both = {"affinity": {**apart["affinity"], **near["affinity"]}}
    story = started(
        *(pod(f"x{at}", node=f"n{at}", labels={"app": "noisy"}) for at in (1, 2, 3)),
        pod("c", node="n3", labels={"app": "cache"}),
    )
    assert sent(story, pod("a", spec=both)).terms == (on(HOST, "n1", "n2", weight=-10),)


def test_an_ask_is_reported_again_when_the_pods_around_it_change() -> None:
    likes = affinity("podAffinity", 30, {"app": "cache"})
    story = started()
    assert sent(story, pod("a", spec=likes)) == NodePreferences()
    story.see(pod("c", node="n1", labels={"app": "cache"}))
    story.forget()
    story.seconds(1)
    assert story.last_pod().preferences == NodePreferences((on(ZONE, "a", weight=30),))


def test_a_placed_pod_keeps_the_preferences_it_was_sent_with() -> None:
    likes = affinity("podAffinity", 30, {"app": "cache"})
    cache = pod("c", node="n1", labels={"app": "cache"})
    story = started(cache)
    before = sent(story, pod("a", spec=likes))
    story.hear(Placed("uid-a", "n2"))
    story.forget()
    story.gone(cache)
    story.see(pod("a", node="n2", spec=likes, status={"startTime": "2026-01-01T00:00:09Z"}))
    assert story.last_pod().node == "n2"
    assert story.last_pod().preferences == before


def test_group_preferences_have_names_of_bounded_length() -> None:
    long = {f"key-{at}": "value" * 10 for at in range(30)}
    spec = affinity("podAntiAffinity", 1, long)
    (group,) = sent(started(), pod("a", labels=long, spec=spec)).groups
    assert group == GroupPreference(group.group, ZONE, -1)
    assert len(group.group) == 24
