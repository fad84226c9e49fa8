"""Attach limits of CSI drivers: the volumes of pods on a node are counted, and a pod is kept away from a full node."""

import random
import sys
from collections import Counter

import pytest

from shim_client.cluster import Change, ClusterError, Listing, RecordEvent, WatchEvent
from shim_client.messages import Placed, PlanCheck, PlanCheckAnswer
from shim_client.state_machine.machine import Beat
from shim_client.state_machine.node_suitability import obstacle
from tests.effort import cases
from tests.shim.objects import Item, node, pod
from tests.shim.story import Story

DISKS, FILES = "disks.example", "files.example"
NODES = [node(name) for name in ("n1", "n2")]


def limits(name: str, **drivers: int | None) -> Item:
    """Return the CSINode of a node; None: the driver has no limit there."""
    names = {"disks": DISKS, "files": FILES}
    found = [
        {"name": names[one], **({"allocatable": {"count": count}} if count is not None else {})}
        for one, count in drivers.items()
    ]
    return {"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": found}}


def volume(name: str, driver: str = DISKS, handle: str = "") -> Item:
    """Return a volume that the claim of the same name has."""
    csi = {"driver": driver, "volumeHandle": handle or f"handle-{name}"}
    spec = {"claimRef": {"namespace": "work", "name": name}, **({"csi": csi} if driver else {})}
    return {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec, "status": {}}


def claim(name: str, *, volume_name: str = "", kind: str = "") -> Item:
    spec = {"volumeName": volume_name, "storageClassName": kind}
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "work"},
        "spec": spec,
        "status": {"phase": "Bound" if volume_name else "Pending"},
    }


def disk(name: str, driver: str = DISKS, handle: str = "") -> list[Item]:
    """Return a volume and the claim that has it."""
    return [volume(name, driver, handle), claim(name, volume_name=name)]


def made_later(name: str, driver: str = DISKS) -> Item:
    """Return a storage class that makes a volume when the pod has a node."""
    return {
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": driver,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def mounts(name: str, *claims: str, on: str = "") -> Item:
    found = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    return pod(name, node=on, spec={"volumes": found})


def full(story: Story, name: str) -> list[str]:
    """Return the nodes that cannot attach the volumes of a waiting pod."""
    state = story.mirror.state
    waiting = state.pods[f"uid-{name}"]
    return [one for one in state.nodes if "CSINode" in obstacle(state, waiting, one)]


def excluded(story: Story) -> list[str]:
    constraints = story.last_pod().constraints
    return [] if constraints is None else [*constraints.excluded_nodes]


def started(*items: Item) -> Story:
    return Story().start(*NODES, limits("n1", disks=2), *items).forget()


def test_a_pod_stays_away_from_a_node_whose_driver_has_no_volume_left() -> None:
    story = started(*disk("a"), *disk("b"), *disk("c"), mounts("one", "a", "b", on="n1"))
    story.see(mounts("new", "c"))
    assert excluded(story) == ["n1"]
    story.hear(Placed("uid-new", "n1"))
    assert story.binds() == []
    story.hear(Placed("uid-new", "n2"))
    assert [one.node for one in story.binds()] == ["n2"]


@pytest.mark.parametrize(
    ("there", "wanted", "kept_away"),
    [
        (["a"], ["c"], False),
        (["a"], ["c", "d"], True),
        (["a", "b"], ["a"], False),
        (["a", "b"], ["a", "c"], True),
        ([], ["a", "b"], False),
        ([], ["a", "b", "c"], True),
        (["a", "b"], ["file"], False),
        (["a", "b"], ["plain"], False),
        (["a", "plain", "file"], ["c"], False),
        (["a", "same-as-a"], ["c"], False),
    ],
)
def test_volumes_are_counted_by_driver_and_each_once(
    there: list[str], wanted: list[str], *, kept_away: bool
) -> None:
    story = started(
        *(one for name in "abcd" for one in disk(name)),
        *disk("file", FILES),
        *disk("plain", ""),
        *disk("same-as-a", handle="handle-a"),
        *(mounts(f"p-{name}", name, on="n1") for name in there),
    )
    story.see(mounts("new", *wanted))
    assert full(story, "new") == (["n1"] if kept_away else [])


def test_pods_of_other_schedulers_count_too() -> None:
    foreign = mounts("one", "a", "b", on="n1")
    foreign["spec"]["schedulerName"] = "default-scheduler"
    story = started(*disk("a"), *disk("b"), *disk("c"), foreign, mounts("new", "c"))
    assert full(story, "new") == ["n1"]


def test_a_claim_without_a_volume_counts_for_the_driver_of_its_class() -> None:
    later, files = made_later("later"), made_later("files", FILES)
    claims = [claim("a", kind="later"), claim("b", kind="later"), claim("f", kind="files")]
    story = started(later, files, *claims, *disk("c"), mounts("one", "a", "b", on="n1"))
    story.see(mounts("new", "c"), mounts("other", "f"))
    assert (full(story, "new"), full(story, "other")) == (["n1"], [])
    story.see(*disk("a"), *disk("b", FILES))
    assert full(story, "new") == []


def test_a_volume_that_comes_after_its_claim_is_counted_by_its_handle() -> None:
    later = made_later("later")
    named = [claim(name, volume_name=name, kind="later") for name in ("a", "b")]
    story = started(later, *named, *disk("c"))
    story.see(mounts("one", "a", on="n1"), mounts("two", "b", on="n1"), mounts("new", "c"))
    assert full(story, "new") == ["n1"]
    story.see(volume("a", handle="shared"), volume("b", handle="shared"))
    assert full(story, "new") == []


def test_a_node_without_a_limit_takes_every_volume() -> None:
    many = [f"v{number}" for number in range(9)]
    items = [one for name in many for one in disk(name)]
    story = started(*items, mounts("one", *many[:8], on="n1"), mounts("new", many[8]))
    assert full(story, "new") == ["n1"]
    story.see(limits("n1", disks=None, files=0))
    assert full(story, "new") == []
    story.see(limits("n1", disks=0))
    assert full(story, "new") == ["n1"]
    story.gone(limits("n1"))
    assert full(story, "new") == []


def test_limits_that_were_deleted_unseen_no_longer_count() -> None:
    story = started(*disk("a"), limits("n2", disks=0), mounts("new", "a"))
    assert full(story, "new") == ["n2"]
    story.lists(limits("n1", disks=2), kinds=["CSINode"])
    assert full(story, "new") == []


def test_a_cluster_without_csi_nodes_has_no_limits() -> None:
    story = Story().start(*NODES, *disk("a"))
    story.mirror.handle(Listing("CSINode", [], 0, served=False))
    story.see(mounts("new", "a"))
    assert full(story, "new") == []


def test_a_pod_that_ends_or_is_not_bound_gives_its_volumes_back() -> None:
    story = started(*disk("a"), *disk("b"), *disk("c"), mounts("one", "a", on="n1"))
    story.see(mounts("two", "b"), mounts("new", "c"))
    story.hear(Placed("uid-two", "n1"))
    assert full(story, "new") == ["n1"]
    story.outcome(story.binds()[-1], ClusterError("503"))
    assert full(story, "new") == []
    story.hear(Placed("uid-two", "n1"))
    assert full(story, "new") == ["n1"]
    story.gone(mounts("one", "a", on="n1"))
    assert full(story, "new") == []


def test_a_waiting_pod_is_reported_again_when_a_node_has_volumes_left() -> None:
    story = started(*disk("a"), *disk("b"), *disk("c"), mounts("one", "a", "b", on="n1"))
    story.see(mounts("new", "c"))
    assert excluded(story) == ["n1"]
    story.gone(mounts("one", "a", "b", on="n1"))
    story.mirror.handle(Beat.SECOND)
    story.see()
    assert story.last_pod().pod_name == "new"
    assert excluded(story) == []


def test_volumes_of_a_claim_that_is_being_deleted_stay_attached() -> None:
    story = started(*disk("a"), *disk("b"), *disk("c"), mounts("one", "a", "b", on="n1"))
    going = claim("b", volume_name="b")
    going["metadata"]["deletionTimestamp"] = "2026-11-01T00:00:00Z"
    story.see(going, mounts("one", "a", "b", on="n1"), mounts("new", "c"))
    assert full(story, "new") == ["n1"]


@pytest.mark.parametrize(("victims", "fits"), [((), False), (("uid-one",), True)])
def test_a_plan_check_counts_without_the_victims_and_with_the_pods_before(
    victims: tuple[str, ...], *, fits: bool
) -> None:
    story = started(*disk("a"), *disk("b"), *disk("c"), mounts("one", "a", on="n1"))
    story.see(mounts("first", "b"), mounts("second", "c"))
    placements = (("uid-first", "n1"), ("uid-second", "n1"))
    story.hear(PlanCheck("check", "default", placements, victims))
    [answer] = [one for one in story.reports if isinstance(one, PlanCheckAnswer)]
    assert [key for key, _ in answer.refused] == ([] if fits else ["uid-second"])


@pytest.mark.parametrize("count", ["7", -1, True, 1.5])
def test_a_limit_that_cannot_be_read_is_an_event_and_the_one_before_stays(count: object) -> None:
    story = started(*disk("a"), *disk("b"), *disk("c"), mounts("one", "a", "b", on="n1"))
    bad = limits("n1", disks=0)
    bad["spec"]["drivers"][0]["allocatable"]["count"] = count
    story.mirror.handle(WatchEvent(Change.MODIFIED, "CSINode", bad, 2))
    story.see(mounts("new", "c"))
    [event] = [one for one in story.actions if isinstance(one, RecordEvent)]
    assert (event.about.kind, event.reason) == ("CSINode", "CSINodeNotReadable")
    assert full(story, "new") == ["n1"]


def test_random_worlds_count_as_a_plain_recount_does() -> None:
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    for case in range(cases(20)):
        _world(random.Random(f"{seed} {case}"))


def _world(chance: random.Random) -> None:
    drivers = {f"v{number}": chance.choice((DISKS, FILES, "")) for number in range(6)}
    handles = {name: f"h{chance.randrange(4)}" for name in drivers}
    most: dict[str, dict[str, int]] = {"n1": {}, "n2": {}}
    running: dict[str, tuple[str, tuple[str, ...]]] = {}
    story = Story().start(
        *NODES, *(one for name in drivers for one in disk(name, drivers[name], handles[name]))
    )
    for step in range(40):
        name = chance.choice(sorted(most))
        if chance.random() < 0.2:
            most[name] = {DISKS: chance.randrange(4), FILES: chance.randrange(4)}
            story.see(limits(name, disks=most[name][DISKS], files=most[name][FILES]))
        elif running and chance.random() < 0.4:
            gone = chance.choice(sorted(running))
            at, claims = running.pop(gone)
            story.gone(mounts(gone, *claims, on=at))
        else:
            claims = tuple(chance.sample(sorted(drivers), chance.randint(1, 3)))
            running[f"p{step}"] = name, claims
            story.see(mounts(f"p{step}", *claims, on=name))
        wanted = tuple(chance.sample(sorted(drivers), chance.randint(1, 4)))
        story.see(mounts(f"w{step}", *wanted))

        def volumes(claims: tuple[str, ...]) -> set[tuple[str, str]]:
            return {(drivers[one], handles[one]) for one in claims if drivers[one]}

        expected = []
        for one, limit in most.items():
            there = {
                each for at, claims in running.values() if at == one for each in volumes(claims)
            }
            new = Counter(driver for driver, _ in volumes(wanted) - there)
            used = Counter(driver for driver, _ in there)
            if any(used[driver] + count > limit.get(driver, 99) for driver, count in new.items()):
                expected.append(one)
        assert full(story, f"w{step}") == expected, (step, wanted)
