"""Constraints that the core cannot check: affinity between pods, topology spread, volumes (design 1.8)."""

import random
import sys
from collections import Counter
from typing import Any

import pytest

from shim_client.cluster import Bind, ElsewhereError, PatchPod
from shim_client.messages import Placed
from shim_client.state_machine import node_suitability
from shim_client.state_machine.machine import Beat
from shim_client.state_machine.node_suitability import NOWHERE, obstacle
from tests.shim.objects import Item, foreign, named, node, pod
from tests.shim.story import Story, changed

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def cluster(*items: Item, zones: str = "aabb") -> list[Item]:
    nodes = [
        node(f"n{number}", labels={ZONE: zone, HOST: f"n{number}"})
        for number, zone in enumerate(zones, start=1)
    ]
    return [*nodes, *items]


def started(*items: Item) -> Story:
    return Story().start(*cluster(*items)).forget()


def near(kind: str, key: str, labels: dict[str, str], **more: Any) -> dict[str, Any]:
    """Return a pod's spec with one term of affinity or anti-affinity."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}, **more}
    return {"affinity": {kind: {REQUIRED: [term]}}}


def apart(name: str, at: str = "", key: str = HOST) -> Item:
    """Return a pod with anti-affinity to pods like itself."""
    spec = near("podAntiAffinity", key, {"app": "db"})
    return pod(name, node=at, labels={"app": "db"}, spec=spec)


def spread(name: str, at: str = "", skew: int = 1, key: str = ZONE, **more: Any) -> Item:
    rule = {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }
    return pod(name, node=at, labels={"app": "web"}, spec={"topologySpreadConstraints": [rule]})


def lists(story: Story) -> tuple[list[str], list[str]]:
    """Return the allowed and excluded nodes of the pod that the core was told of last."""
    constraints = story.last_pod().constraints
    if constraints is None:
        return [], []
    return [*constraints.allowed_nodes], [*constraints.excluded_nodes]


def see(story: Story, *items: Item) -> tuple[list[str], list[str]]:
    story.forget()
    story.see(*items)
    return lists(story)


def test_a_pod_keeps_away_from_its_like() -> None:
    story = started(apart("a", "n1"))
    assert see(story, apart("b")) == ([], ["n1"])
    assert story.last_pod().rm_check
    assert see(started(apart("a", "n1", ZONE)), apart("b", key=ZONE)) == ([], ["n1", "n2"])


def test_a_pod_without_demands_is_kept_away_by_one_with_them() -> None:
    story = started(apart("a", "n1"))
    plain = pod("b", labels={"app": "db"})
    assert see(story, plain) == ([], ["n1"])
    assert story.last_pod().rm_check
    other = pod("c", labels={"app": "other"})
    assert see(story, other) == ([], [])
    assert not story.last_pod().rm_check


def test_a_foreign_pod_counts_too() -> None:
    spec = near("podAntiAffinity", HOST, {"app": "db"})
    story = started(foreign("f", "n2", labels={"app": "x"}, spec=spec))
    assert see(story, pod("b", labels={"app": "db"})) == ([], ["n2"])
    assert see(story, apart("c")) == ([], ["n2"])


def test_a_pod_goes_where_the_pods_are_that_it_wants() -> None:
    wants = near("podAffinity", ZONE, {"app": "cache"})
    story = started(pod("c", node="n3", labels={"app": "cache"}))
    assert see(story, pod("a", spec=wants)) == (["n3", "n4"], [])
    assert see(started(), pod("a", spec=wants)) == ([NOWHERE], [])


def test_the_first_of_pods_that_want_each_other_goes_anywhere_with_the_label() -> None:
    wants = near("podAffinity", ZONE, {"app": "db"})
    story = Story().start(*cluster(), node("bare")).forget()
    first = pod("a", labels={"app": "db"}, spec=wants)
    assert see(story, first) == (["n1", "n2", "n3", "n4"], [])
    story.hear(Placed("uid-a", "n2"))
    assert see(story, pod("b", labels={"app": "db"}, spec=wants)) == (["n1", "n2"], [])


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ({"namespaces": ["other"]}, ["n2"]),
        ({"namespaceSelector": {}}, ["n1", "n2", "n3"]),
        ({"namespaceSelector": {"matchLabels": {"team": "red"}}}, ["n3"]),
        (
            {"namespaces": ["work"], "namespaceSelector": {"matchLabels": {"team": "red"}}},
            ["n1", "n3"],
        ),
    ],
)
def test_namespaces_are_named_or_selected(term: dict[str, Any], expected: list[str]) -> None:
    red = named("Namespace", "red")
    red["metadata"]["labels"] = {"team": "red"}
    where = {"n1": "work", "n2": "other", "n3": "red"}
    placed = [pod(f"p-{at}", ns=ns, node=at, labels={"app": "db"}) for at, ns in where.items()]
    story = started(red, *placed)
    spec = near("podAntiAffinity", HOST, {"app": "db"}, **term)
    assert see(story, pod("a", spec=spec)) == ([], expected)
    red_no_more = named("Namespace", "red")
    story.see(red_no_more)
    assert see(story, pod("b", spec=spec)) == (
        [],
        [one for one in expected if one != "n3" or len(expected) == 3],
    )


def test_pods_spread_over_places() -> None:
    story = started(spread("a", "n1"))
    assert see(story, spread("b")) == (["n3", "n4"], [])
    assert see(story, spread("c", skew=2)) == (["n1", "n2", "n3", "n4"], [])
    assert see(started(), spread("d", minDomains=3)) == (["n1", "n2", "n3", "n4"], [])
    assert see(started(spread("a", "n1"), spread("b", "n3")), spread("d", minDomains=3)) == (
        [NOWHERE],
        [],
    )


def test_a_pod_that_is_going_does_not_count_for_spread_but_for_the_rest() -> None:
    going = changed(spread("a", "n1"), "metadata", deletionTimestamp="2026-01-01T00:05:00Z")
    assert see(started(going), spread("b"))[0] == ["n1", "n2", "n3", "n4"]
    leaving = changed(apart("a", "n1"), "metadata", deletionTimestamp="2026-01-01T00:05:00Z")
    assert see(started(leaving), apart("b")) == ([], ["n1"])


def test_places_that_the_pod_itself_rules_out_do_not_count() -> None:
    only_a = spread("b")
    only_a["spec"]["nodeSelector"] = {ZONE: "a"}
    assert see(started(spread("a", "n1")), only_a) == (["n1", "n2"], [])
    rules = only_a["spec"]["topologySpreadConstraints"]
    rules[0]["nodeAffinityPolicy"] = "Ignore"
    assert see(started(spread("a", "n1")), only_a) == (["n3", "n4"], [])


def test_a_decision_on_an_older_state_is_given_back_with_the_newer() -> None:
    story = started(apart("a"), apart("b"))
    story.hear(Placed("uid-a", "n1"), Placed("uid-b", "n1"))
    assert story.did() == ["bind a@n1"]
    assert story.told() == ["release b SCHEDULING_FAILED_ON_RM", "ask b"]
    story.hear(Placed("uid-b", "n2"))
    assert story.did() == ["bind b@n2"]


def test_a_node_that_no_list_can_exclude_is_avoided_by_the_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_suitability, "NODES_LISTED_MAX", 0)
    story = started(apart("a", "n1"))
    story.see(apart("b"))
    story.forget()
    story.hear(Placed("uid-b", "n1"))
    assert story.told() == ["release b SCHEDULING_FAILED_ON_RM"]
    assert story.did() == []


def test_asks_are_looked_at_again_when_what_suits_them_has_changed() -> None:
    holder = apart("a", "n1")
    story = started(holder, apart("b"))
    story.gone(holder)
    assert story.told() == ["release a STOPPED_BY_RM"]
    beat(story)
    assert story.told() == ["ask b"]
    beat(story)
    assert story.told() == []


def beat(story: Story) -> None:
    story.mirror.handle(Beat.SECOND)
    reports, _ = story.mirror.take()
    story.reports += reports


def test_a_binding_to_somewhere_else_is_told_as_it_is() -> None:
    story = started(pod("a"))
    story.hear(Placed("uid-a", "n1"))
    story.forget()
    ref = story.mirror.state.pods["uid-a"].facts.ref
    story.outcome(Bind(ref, "n1"), ElsewhereError("it is bound", "n2"))
    assert story.told() == ["release a SCHEDULING_FAILED_ON_RM", "alloc a@n2"]


def volume(name: str, zone: str) -> Item:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {"nodeAffinity": affinity},
    }


def claim(phase: str, volume: str = "", kind: str = "") -> Item:
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "work"},
        "spec": {"volumeName": volume, "storageClassName": kind},
        "status": {"phase": phase},
    }


MOUNTS = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}


def test_a_pod_goes_where_its_volume_can_be_mounted() -> None:
    story = started(volume("v1", "b"), claim("Bound", "v1"))
    assert see(story, pod("a", spec=MOUNTS)) == (["n3", "n4"], [])
    story.hear(Placed("uid-a", "n1"))
    assert story.did() == []


def test_a_claim_waits_for_its_volume_or_the_volume_for_the_pod() -> None:
    waits = {
        "kind": "StorageClass",
        "metadata": {"name": "local"},
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    story = started(claim("Pending", kind="fast"), pod("a", spec=MOUNTS))
    assert story.told() == []
    story.see(claim("Pending", kind="local"))
    assert story.told() == []
    story.see(waits)
    assert story.told() == ["app app in root.a", "ask a"]
    story.hear(Placed("uid-a", "n1"))
    assert story.binds()[-1].claims == (("c", ""),)
    held = started(claim("Pending", kind="fast"), pod("a", spec=MOUNTS))
    held.see(claim("Bound", "v1"))
    assert held.told() == []
    held.see(volume("v1", "a"))
    assert held.told() == ["app app in root.a", "ask a"]


def test_random_worlds_count_as_a_plain_recount_does() -> None:
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    story = started()
    for step in range(300):
        _change(story, chance, step)
        if step % 10 == 9:
            _compare(story)


def _change(story: Story, chance: random.Random, step: int) -> None:
    known = list(story.mirror.state.pods.values())
    if known and chance.random() < 0.3:
        gone = chance.choice(known).facts.ref.name
        story.gone(pod(gone))
        return
    at = chance.choice(["", "n1", "n2", "n3", "n4"])
    name = f"p{step}"
    story.see(apart(name, at) if chance.random() < 0.5 else spread(name, at))
    if chance.random() < 0.1:
        name = chance.choice(["n1", "n2", "n3", "n4"])
        story.see(node(name, labels={ZONE: chance.choice("ab"), HOST: name}))


def _compare(story: Story) -> None:
    state = story.mirror.state
    zones = {name: one.facts.labels[ZONE] for name, one in state.nodes.items()}
    assigned = [one for one in state.pods.values() if one.node]
    of_db = {one.node for one in assigned if one.facts.labels.get("app") == "db"}
    web = Counter(zones[one.node] for one in assigned if one.facts.labels.get("app") == "web")
    least = min(web[zone] for zone in set(zones.values()))
    for one in state.pods.values():
        if one.node:
            continue
        for name, zone in zones.items():
            db = one.facts.labels["app"] == "db"
            expected = name in of_db if db else web[zone] + 1 - least > 1
            assert bool(obstacle(state, one, name)) == expected, (one.facts.ref.name, name)


def test_a_binding_that_waits_for_volumes_is_said_in_the_condition() -> None:
    kind = {
        "kind": "StorageClass",
        "metadata": {"name": "local"},
        "provisioner": "disks.example",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    story = started(kind, claim("Pending", kind="local"), pod("a", spec=MOUNTS))
    story.hear(Placed("uid-a", "n1"))
    [patch] = [one for one in story.actions if isinstance(one, PatchPod)]
    assert patch.condition is not None
    assert patch.condition[1:3] == ("False", "WaitingForVolumes")
