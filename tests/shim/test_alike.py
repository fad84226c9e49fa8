"""Cached results for equal parts equal fresh ones, and a pod cut to the fields that are read gives equal facts."""

import copy
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from shim_client.config import Settings
from shim_client.kubernetes.kinds import trimmed
from shim_client.messages import NodeConstraints
from shim_client.translate import alike, metadata, spec, wire
from shim_client.translate.alike import ReadOnce
from shim_client.translate.fields import BadObjectError
from shim_client.translate.pod import PodFacts, read_pod
from tests.bench import manifests
from tests.effort import cases
from tests.shim.objects import Item
from tests.shim.test_garbage import JUNK, RICH_POD, spots

ROUNDS = cases(3000)
READINGS = (spec.own, spec.foreign, metadata.own, metadata.foreign)
SETTINGS = (
    Settings(),
    Settings(scheduler_names=("another",)),
    Settings(generate_unique_app_id=True, gangs=False, honour_pod_annotation=False),
)
GROUPS = '[{"name":"a","minMember":2,"minResource":{"cpu":"1"}}]'
NOTES: list[dict[str, Any]] = [
    {},
    {"yunikorn.apache.org/task-groups": GROUPS, "yunikorn.apache.org/task-group-name": "b"},
    {"yunikorn.apache.org/allow-preemption": "false", "own/note": "x"},
    {"evenhand.io/released-for": "d/u/n", "evenhand.io/delivery": "soft"},
    {"internal.yunikorn.apache.org/placeholder": "true", "evenhand.io/gang-size": "3"},
    {"yunikorn.apache.org/app-id": "a-uniqueautogen"},
]
LABELS: list[dict[str, Any]] = [
    {},
    {"applicationId": "other", "spark-app-selector": "more"},
    {"applicationId": "b-uniqueautogen", "evenhand.io/job": "j", "evenhand.io/job-members": "2"},
    {"quota.scheduling.koordinator.sh/preemptible": "false", "evenhand.io/partition": "p"},
    {"scheduling.koordinator.sh/soft-eviction": "true", "queue": "root.b"},
]


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """Clear the caches of readings before and after each test."""
    for reading in READINGS:
        reading.forget()
    yield
    for reading in READINGS:
        reading.forget()


def said(item: Item, settings: Settings) -> PodFacts | str:
    """Return the facts of a pod, or the text of its error."""
    try:
        return read_pod(item, settings)
    except BadObjectError as bad:
        return str(bad)


def whole(facts: PodFacts | str) -> object:
    return facts if isinstance(facts, str) else (facts, facts.problems)


def drawn(chance: random.Random) -> Item:
    """Return a pod of a few kinds, running or not, sometimes with junk somewhere."""
    item: Item = copy.deepcopy(chance.choice((RICH_POD, RICH_POD, manifests.pod(7, "n1"))))
    names = item["metadata"]
    names["managedFields"] = [{"manager": "kubelet"}]
    names["uid"] = f"u{chance.randrange(3)}"
    names["labels"] = {**names["labels"], **chance.choice(LABELS)}
    names["annotations"] = {**names["annotations"], **chance.choice(NOTES)}
    if chance.random() < 0.3:
        item["spec"]["nodeName"] = "good"
    if chance.random() < 0.3:
        item["status"]["containerStatuses"] = [
            {"name": "c", "resources": {"requests": {"cpu": "3"}}, "image": "x", "ready": True}
        ]
    if chance.random() < 0.3:
        why = {"type": "PodResizePending", "reason": "Infeasible"}
        item["status"]["conditions"] = [why]
    if chance.random() < 0.6:
        *path, last = chance.choice(spots(item))
        place = item
        for step in path:
            place = place[step]
        place[last] = copy.deepcopy(chance.choice(JUNK))
    return item


def test_reading_once_says_what_reading_each_time_says(
    chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain twin: every part is read for every pod."""
    items = [(drawn(chance), chance.choice(SETTINGS)) for _ in range(ROUNDS)]
    first = [whole(said(item, settings)) for item, settings in items]
    again = [whole(said(item, settings)) for item, settings in items]
    monkeypatch.setattr(ReadOnce, "__call__", lambda self, one, other: self.plain(one, other))
    plain = [whole(said(item, settings)) for item, settings in items]
    assert first == plain
    assert again == plain
    assert sum(isinstance(one, str) for one in plain) < ROUNDS / 2


def test_a_pod_that_is_cut_down_says_what_the_whole_one_says(chance: random.Random) -> None:
    for _ in range(ROUNDS):
        item, settings = drawn(chance), chance.choice(SETTINGS)
        assert whole(said(dict(trimmed("Pod", item)), settings)) == whole(said(item, settings)), (
            item
        )


def test_messages_of_pods_that_are_alike_say_what_each_one_says(chance: random.Random) -> None:
    """The plain twin: every message is made from nothing."""
    found = [said(drawn(chance), chance.choice(SETTINGS)) for _ in range(ROUNDS)]
    reports = [facts.report for facts in found if not isinstance(facts, str)]
    listed = [replace(one, constraints=NodeConstraints(allowed_nodes=("n",))) for one in reports]
    for report in (*reports, *listed, *reports):
        message = wire.allocation(report)
        assert message == wire.filled(wire.part_alike(report), report)
        tags = {**report.tags, **dict(wire.own_tags(report))}
        assert dict(message.allocationTags) == tags


def test_pods_of_one_owner_share_what_is_read_of_them() -> None:
    one, other = (read_pod(manifests.pod(at), Settings()) for at in (0, 1))
    assert one.ref != other.ref
    assert one.labels is other.labels
    for name in ("resource", "tags", "constraints"):
        assert getattr(one.report, name) is getattr(other.report, name), name


@pytest.mark.parametrize(
    ("value", "near"),
    [(1, True), (1, 1.0), ("1", b"1"), ([], {}), (None, ""), (0, -0.0), ([1], (1,))],
)
def test_what_only_looks_alike_is_read_by_itself(value: object, near: object) -> None:
    reading = ReadOnce[object, object, str](lambda one, _: repr(one))
    assert [reading(value, 0), reading(near, 0), reading(value, 0)] == [
        repr(value), repr(near), repr(value),
    ]  # fmt: skip


def test_so_much_is_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "KEPT_MAX", 3)
    reading = ReadOnce[object, object, object](lambda one, _: [one])
    for at in range(10):
        reading(at, 0)
        assert len(reading) <= 3
    assert reading("a", 0) is reading("a", 0)
    long = "a" * alike.SPELLING_BYTES_MAX
    assert reading(long, 0) is not reading(long, 0)
    monkeypatch.setattr(alike, "KEPT_MAX", 1_000)
    monkeypatch.setattr(alike, "KEPT_BYTES_MAX", 100)
    for at in range(100):
        reading(f"{at:020}", 0)
        assert len(reading) <= 5
    without_spelling = frozenset({object()})
    assert reading(without_spelling, 0) is not reading(without_spelling, 0)
