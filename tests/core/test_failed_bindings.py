"""A placement that the resource manager gives back: the event says why (design 1.8)."""

import pytest

from server.core.core import Core
from server.model.asks import AskSpec
from server.model.decisions import Noted, Termination
from server.model.events import (
    ApplicationAdded,
    AskAdded,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.model.quota import Acl, Configuration, PartitionSpec, QueueSpec
from server.model.reasons import Code
from server.model.resources import resource

NOW = 1_800_000_000_000
TREE = QueueSpec("root", parent=True, submit_acl=Acl(everyone=True), children=(QueueSpec("a"),))


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("", "binding on n1 failed; the node is avoided for 60 s"),
        (
            "label disk is not ssd",
            "binding on n1 failed: label disk is not ssd; the node is avoided for 60 s",
        ),
    ],
)
def test_the_event_of_an_avoided_node_says_why(why: str, told: str) -> None:
    core = Core(Configuration((PartitionSpec("default", TREE),)))
    for event in (
        ManagerRegistered("rm"),
        NodeAdded("rm", "n1", resource({"memory": 10})),
        ApplicationAdded("rm", "app", "root.a"),
        AskAdded("rm", "pod", "app", AskSpec(resource({"memory": 10}))),
    ):
        core.handle(event, NOW)
    core.tick(NOW)
    failed = ReleaseRequested(
        "rm", "app", "pod", termination=Termination.SCHEDULING_FAILED_ON_RM, message=why
    )
    notes = [one for one in core.handle(failed, NOW) if isinstance(one, Noted)]
    assert [(one.code, one.message) for one in notes] == [(Code.NODE_AVOIDED, told)]
