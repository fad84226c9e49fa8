"""A configuration that makes a used leaf queue a parent, or a parent a leaf: the asks that wait there are still placed."""

import pytest

from evenhand_cli.story.play import run
from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import ApplicationAccepted
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.model.quota import (
    Acl,
    Configuration,
    PartitionSpec,
    PlacementRule,
    QueueProperties,
    QueueSpec,
    SortPolicy,
)
from server.model.resources import resource
from tests.simulation.duel import placements

NOW = 1_800_000_000_000
LEAF = QueueSpec("x")
PARENT = QueueSpec("x", parent=True, children=(QueueSpec("y"),))


def _under_root(child: QueueSpec) -> Configuration:
    root = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=(child,))
    return Configuration((PartitionSpec("default", root),))


ALONE = Configuration((PartitionSpec("default", QueueSpec("root", submit_acl=Acl(everyone=True))),))


@pytest.mark.parametrize(
    ("before", "after", "queue"),
    [
        (_under_root(LEAF), _under_root(PARENT), "root.x"),
        (_under_root(PARENT), _under_root(LEAF), "root.x.y"),
        (ALONE, _under_root(LEAF), "root"),
        (_under_root(LEAF), ALONE, "root.x"),
    ],
    ids=["leaf to parent", "parent to leaf", "root to parent", "root to leaf"],
)
def test_who_waits_is_placed_after_the_change(
    before: Configuration, after: Configuration, queue: str
) -> None:
    core = Core(before)
    core.handle(ManagerRegistered("rm"), NOW)
    core.handle(NodeAdded("rm", "n1", resource({"vcore": 100})), NOW)
    core.handle(ApplicationAdded("rm", "app", queue), NOW)
    for key in ("first", "second"):
        core.handle(AskAdded("rm", key, "app", AskSpec(resource({"vcore": 60}))), NOW)
    assert placements(run(core, NOW)) == [("first", "n1")]
    core.handle(ConfigurationApplied(after, "test", "rm"), NOW)
    core.handle(ReleaseRequested("rm", "app", "first"), NOW)
    assert placements(run(core, NOW)) == [("second", "n1")]
    core.validate()


@pytest.mark.parametrize("policy", SortPolicy)
@pytest.mark.parametrize("priority_sort", [True, False])
def test_applications_are_in_order_beside_queues_that_drain(
    policy: SortPolicy, *, priority_sort: bool
) -> None:
    properties = QueueProperties(sort_policy=policy, priority_sort=priority_sort)
    leaf = QueueSpec("x", properties=properties)
    core = Core(_under_root(PARENT))
    core.handle(ManagerRegistered("rm"), NOW)
    core.handle(NodeAdded("rm", "n1", resource({"vcore": 100})), NOW)
    for name, key, queue in (("old", "a", "root.x.y"), ("new", "b", "root.x")):
        core.handle(ApplicationAdded("rm", name, queue), NOW)
        core.handle(AskAdded("rm", key, name, AskSpec(resource({"vcore": 60}))), NOW)
        core.handle(ConfigurationApplied(_under_root(leaf), "test", "rm"), NOW)
    assert len(placements(run(core, NOW))) == 1
    core.validate()


def test_a_dynamic_queue_places_again_when_its_partition_is_configured_again() -> None:
    created = (PlacementRule(kind="provided", create=True),)
    root = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True))
    first, second = (PartitionSpec(name, root, rules=created) for name in ("default", "other"))
    core = Core(Configuration((first, second), digest="both"))
    core.handle(ManagerRegistered("rm"), NOW)
    core.handle(NodeAdded("rm", "n1", resource({"vcore": 100}), partition="other"), NOW)
    core.handle(ApplicationAdded("rm", "app", "root.x", "other"), NOW)
    core.handle(ConfigurationApplied(Configuration((first,), digest="one"), "test"), NOW)
    core.handle(AskAdded("rm", "a", "app", AskSpec(resource({"vcore": 1})), "other"), NOW)
    assert placements(run(core, NOW)) == []
    core.handle(ConfigurationApplied(Configuration((first, second), digest="both"), "test"), NOW)
    assert placements(run(core, NOW)) == [("a", "n1")]
    (accepted, _) = core.handle(ApplicationAdded("rm", "next", "root.x", "other"), NOW)
    assert isinstance(accepted, ApplicationAccepted)
    core.validate()
