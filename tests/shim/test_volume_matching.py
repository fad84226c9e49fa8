"""Existing volumes for the claims of a class that waits for its first pod: which are free, which fit, and on which nodes."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from shim_client.cluster import ClusterError
from shim_client.messages import Placed
from shim_client.state_machine import volume_matching
from shim_client.state_machine.volume_matching import plan
from tests.effort import cases
from tests.shim.objects import Item, node, pod
from tests.shim.story import Story

HOST = "kubernetes.io/hostname"
NODES = [node(f"n{number}", labels={HOST: f"n{number}"}) for number in range(1, 4)]


def storage_class(name: str = "local", *, provisions: bool = False) -> Item:
    made_by = "csi.example" if provisions else "kubernetes.io/no-provisioner"
    return {
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": made_by,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume(name: str, at: str = "", size: str = "10Gi", **given: Any) -> Item:
    """Return a free volume that one node can mount, or every node; `given` are its labels, its phase, and fields of its spec."""
    metadata = {"name": name, "labels": given.pop("labels", {})}
    status = {"phase": given.pop("phase", "Available")}
    spec: dict[str, Any] = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        **given,
    }
    if at:
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [at]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return {"kind": "PersistentVolume", "metadata": metadata, "spec": spec, "status": status}


def claim(name: str, size: str = "5Gi", **given: Any) -> Item:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "storageClassName": "local",
        **given,
    }
    metadata = {"name": name, "namespace": "work"}
    head = {"kind": "PersistentVolumeClaim", "metadata": metadata}
    return {**head, "spec": spec, "status": {"phase": "Pending"}}


def wants(name: str, *claims: str) -> Item:
    mounts = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    return pod(name, spec={"volumes": mounts})


def started(*items: Item) -> Story:
    return Story().start(*NODES, storage_class(), *items).forget()


def at(story: Story, name: str, where: str) -> Mapping[str, str] | None:
    """Return the volumes that the pod's claims would get on a node."""
    return plan(story.mirror.state, story.mirror.state.pods[f"uid-{name}"], where)


def allowed(story: Story) -> list[str]:
    constraints = story.last_pod().constraints
    return [] if constraints is None else [*constraints.allowed_nodes]


def test_a_pod_goes_where_a_free_volume_is_and_the_volume_is_bound_first() -> None:
    story = started(volume("v3", "n3"), claim("c"))
    story.see(wants("a", "c"))
    assert allowed(story) == ["n3"]
    story.hear(Placed("uid-a", "n3"))
    assert story.binds()[-1].claims == (("c", "v3"),)


@pytest.mark.parametrize(
    ("offered", "fits"),
    [
        (volume("v", "n1"), True),
        (volume("v", "n1", "5Gi"), True),
        (volume("v", "n1", "4Gi"), False),
        (volume("v", "n1", accessModes=["ReadWriteMany"]), False),
        (volume("v", "n1", accessModes=["ReadWriteMany", "ReadWriteOnce"]), True),
        (volume("v", "n1", volumeMode="Block"), False),
        (volume("v", "n1", storageClassName="other"), False),
        (volume("v", "n1", claimRef={"namespace": "work", "name": "other"}), False),
        (volume("v", "n1", phase="Released"), False),
        (volume("v", "n1", phase="Failed"), False),
    ],
)
def test_a_volume_fits_or_not(offered: Item, fits: bool) -> None:  # noqa: FBT001
    story = started(offered, claim("c"), wants("a", "c"))
    assert (at(story, "a", "n1") == {"c": "v"}) is fits
    assert at(story, "a", "n2") is None
    assert story.mirror.tally().held == (not fits)


def test_a_selector_demands_labels_and_no_new_volume_is_made_for_it() -> None:
    demands = claim("c", selector={"matchLabels": {"disk": "fast"}}, storageClassName="csi")
    kind = storage_class("csi", provisions=True)
    slow = volume("slow", storageClassName="csi", labels={"disk": "slow"})
    story = started(kind, slow, demands, wants("a", "c"))
    assert at(story, "a", "n1") is None
    story.see(volume("fast", storageClassName="csi", labels={"disk": "fast"}))
    assert at(story, "a", "n1") == {"c": "fast"}


def test_the_smallest_volume_that_fits_is_taken_of_equal_ones_the_first_by_name() -> None:
    sizes = (("large", "50Gi"), ("b", "6Gi"), ("a", "6Gi"), ("small", "4Gi"))
    story = started(*(volume(name, "n1", size) for name, size in sizes), claim("c"))
    story.see(wants("p", "c"))
    assert at(story, "p", "n1") == {"c": "a"}


def test_two_claims_of_a_pod_get_two_volumes() -> None:
    story = started(volume("v1", "n1"), volume("v2", "n2"), volume("w2", "n2", "7Gi"))
    story.see(claim("c"), claim("d", "6Gi"), wants("a", "c", "d"))
    assert at(story, "a", "n1") is None
    assert at(story, "a", "n2") == {"c": "w2", "d": "v2"}
    assert allowed(story) == ["n2"]


def test_a_class_that_provisions_makes_a_new_volume_where_none_is_free() -> None:
    kind = storage_class("csi", provisions=True)
    story = started(kind, volume("v1", "n1", storageClassName="csi"))
    story.see(claim("c", storageClassName="csi"), wants("a", "c"))
    assert allowed(story) == []
    assert at(story, "a", "n1") == {"c": "v1"}
    assert at(story, "a", "n2") == {"c": ""}


def test_a_volume_is_pledged_to_one_pod_until_the_binding_fails() -> None:
    story = started(volume("v1", "n1"), claim("c"), claim("d"))
    story.see(wants("a", "c"), wants("b", "d"))
    story.hear(Placed("uid-a", "n1"))
    bind = story.binds()[-1]
    assert at(story, "b", "n1") is None
    story.hear(Placed("uid-b", "n1"))
    assert {one.pod.name for one in story.binds()} <= {"a"}
    story.outcome(bind, ClusterError("no volume yet"))
    assert at(story, "b", "n1") == {"d": "v1"}


def test_a_pledge_stays_after_the_binding_until_the_claim_is_seen_in_the_volume() -> None:
    story = started(volume("v1", "n1"), claim("c"), claim("d"))
    story.see(wants("a", "c"), wants("b", "d"))
    story.hear(Placed("uid-a", "n1"))
    story.outcome(story.binds()[-1], None)
    assert at(story, "b", "n1") is None
    story.see(volume("v1", "n1", claimRef={"namespace": "work", "name": "c"}))
    assert not story.mirror.state.pledged_volumes
    assert at(story, "b", "n1") is None


def test_a_deleted_pod_gives_its_volume_back() -> None:
    story = started(volume("v1", "n1"), claim("c"), claim("d"))
    story.see(wants("a", "c"), wants("b", "d"))
    story.hear(Placed("uid-a", "n1"))
    story.gone(wants("a", "c"))
    assert at(story, "b", "n1") == {"d": "v1"}


def test_a_pod_without_any_volume_is_held_and_goes_on_when_one_comes() -> None:
    story = started(claim("c"), wants("a", "c"))
    assert story.mirror.tally().held == 1
    reason, why = story.mirror.state.pods["uid-a"].said or ("", "")
    assert reason == "Unschedulable"
    assert why.startswith("no free volume of class 'local' suits persistentvolumeclaim 'c'")
    story.forget()
    story.see(volume("v2", "n2"))
    assert allowed(story) == ["n2"]


def test_a_volume_follows_the_labels_of_nodes() -> None:
    story = started(volume("v4", "n4"), claim("c"), wants("a", "c"))
    assert at(story, "a", "n4") is None
    story.see(node("n4", labels={HOST: "n4"}))
    assert at(story, "a", "n4") == {"c": "v4"}


@pytest.mark.parametrize("seed", range(cases(40)))
def test_plans_are_those_of_a_plain_search(seed: int) -> None:
    """Volumes come, go, are pledged and given away; the index by node agrees with a search through all of them."""
    chance = random.Random(seed)
    story = started(storage_class("csi", provisions=True))
    state = story.mirror.state
    for step in range(60):
        kind = chance.choice(("local", "csi"))
        where, size = chance.choice(("", "n1", "n2", "n3")), f"{chance.randrange(1, 9)}Gi"
        one = volume(f"v{chance.randrange(12)}", where, size, storageClassName=kind)
        match chance.randrange(4):
            case 0:
                story.gone(one)
            case 1:
                one["spec"]["claimRef"] = {"name": "x"}
                story.see(one)
            case _:
                story.see(one)
        names = [f"c{step}-{number}" for number in range(chance.randrange(1, 3))]
        for name in names:
            story.see(claim(name, f"{chance.randrange(1, 9)}Gi", storageClassName=kind))
        story.see(wants(f"p{step}", *names))
        record = state.pods[f"uid-p{step}"]
        near = volume_matching.nodes(state, record)
        for name in ("n1", "n2", "n3"):
            found = plan(state, record, name)
            assert found == plain(story, record, name)
            assert near is None or (found is not None) == (name in near)
        if (found := plan(state, record, "n1")) is not None and chance.random() < 0.3:
            volume_matching.pledge(state, record, found)


def plain(story: Story, record: Any, where: str) -> dict[str, str] | None:
    """Return the plan for a node by a search through all volumes."""
    state, chosen = story.mirror.state, dict[str, str]()
    claims = [(name, state.claims[f"work/{name}"]) for name in record.facts.claims]
    for name, facts in sorted(claims, key=lambda one: (one[1].size, one[0])):
        found = sorted(
            (each.size, key)
            for key, each in state.volumes.items()
            if each.is_free
            and key not in state.pledged_volumes
            and key not in chosen.values()
            and each.storage_class == facts.storage_class
            and each.size >= facts.size
            and (not each.terms or each.terms[0].match_expressions[0].values == (where,))
        )
        if not found and facts.storage_class == "local":
            return None
        chosen[name] = found[0][1] if found else ""
    return chosen
