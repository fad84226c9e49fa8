"""Bad input is answered by a rejection that names the field, and the state stays unchanged."""

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from evenhand_cli.story.play import run
from server.core.core import Core
from server.model.asks import AskSpec, Constraints, HostPort
from server.model.decisions import (
    ApplicationRejected,
    ApplicationUpdateRejected,
    AskRejected,
    Decision,
    NodeRejected,
    Noted,
    Termination,
)
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    ApplicationRemoved,
    ApplicationRetagged,
    AskAdded,
    Event,
    ForeignAdded,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    NodeUpdated,
    ReleaseRequested,
    SyncCompleted,
    VictimVetoed,
)
from server.model.quota import Acl, Configuration, PartitionSpec, PlacementRule, QueueSpec
from server.model.reasons import Code
from server.model.resources import QUANTITY_LIMIT, Resource
from tests.simulation.duel import placements

NOW = 1_800_000_000_000
TEN: Resource = (("memory", 10),)
NEGATIVE: Resource = (("memory", -10),)
HUGE: Resource = (("memory", QUANTITY_LIMIT),)
NEARLY_HUGE: Resource = (("memory", QUANTITY_LIMIT - 1),)


class Bad(NamedTuple):
    """One bad event and the words that its rejection has to contain."""

    name: str
    event: Event
    names: str


def _ask(**changes: object) -> AskAdded:
    fields: dict[str, object] = {
        "rm_id": "rm",
        "key": "new",
        "application_id": "x",
        "spec": AskSpec(TEN),
    }
    return AskAdded(**(fields | changes))  # type: ignore[arg-type]


def _allocation(**changes: object) -> AllocationAdded:
    fields: dict[str, object] = {
        "rm_id": "rm",
        "key": "new",
        "application_id": "x",
        "node_id": "n1",
        "spec": AskSpec(TEN),
    }
    return AllocationAdded(**(fields | changes))  # type: ignore[arg-type]


TAGS = {"namespace.resourcequota": '{"memory":5}'}
REJECTED = [
    Bad("ask, unknown partition", _ask(partition="nowhere"), "partition"),
    Bad("ask, unknown application", _ask(application_id="nobody"), "application"),
    Bad("ask, empty key", _ask(key=""), "key"),
    Bad("ask, no resource", _ask(spec=AskSpec(())), "resource"),
    Bad("ask, zero quantity", _ask(spec=AskSpec((("memory", 0),))), "memory"),
    Bad("ask, negative quantity", _ask(spec=AskSpec(NEGATIVE)), "memory"),
    Bad("ask, huge quantity", _ask(spec=AskSpec(HUGE)), "memory"),
    Bad("ask, total too large", _ask(spec=AskSpec(NEARLY_HUGE)), "memory"),
    Bad("ask, key of another application", _ask(key="waits", application_id="y"), "application"),
    Bad(
        "ask, allocation of another application",
        _ask(key="runs", application_id="y"),
        "application",
    ),
    Bad("ask, key of a foreign pod", _ask(key="foreign"), "key"),
    Bad("ask, update to nothing", _ask(key="waits", spec=AskSpec(())), "resource"),
    Bad("ask, update to a negative quantity", _ask(key="runs", spec=AskSpec(NEGATIVE)), "memory"),
    Bad("ask, manager unknown", _ask(rm_id="stranger"), "regist"),
    Bad("ask, application of another manager", _ask(rm_id="other"), "application"),
    Bad("allocation, unknown partition", _allocation(partition="nowhere"), "partition"),
    Bad("allocation, unknown application", _allocation(application_id="nobody"), "application"),
    Bad("allocation, unknown node", _allocation(node_id="n9"), "node"),
    Bad("allocation, negative quantity", _allocation(spec=AskSpec(NEGATIVE)), "memory"),
    Bad(
        "allocation, key of another application",
        _allocation(key="runs", application_id="y"),
        "application",
    ),
    Bad("foreign, unknown node", ForeignAdded("rm", "f2", "n9", TEN), "node"),
    Bad("foreign, unknown partition", ForeignAdded("rm", "f2", "n1", TEN, "nowhere"), "partition"),
    Bad("foreign, negative quantity", ForeignAdded("rm", "f2", "n1", NEGATIVE), "memory"),
    Bad("foreign, key of an allocation", ForeignAdded("rm", "runs", "n1", TEN), "key"),
    Bad("application twice", ApplicationAdded("rm", "x", "root.a"), "application"),
    Bad(
        "application, unknown partition",
        ApplicationAdded("rm", "z", "root.a", "nowhere"),
        "partition",
    ),
    Bad("application, unknown queue", ApplicationAdded("rm", "z", "root.nowhere"), "queue"),
    Bad("application, queue is a parent", ApplicationAdded("rm", "z", "root"), "queue"),
    Bad("application, empty id", ApplicationAdded("rm", "", "root.a"), "application"),
    Bad("application, manager unknown", ApplicationAdded("stranger", "z", "root.a"), "regist"),
    Bad("tags, application unknown", ApplicationRetagged("rm", "nobody", TAGS), "application"),
    Bad("tags, application of another manager", ApplicationRetagged("other", "x", TAGS), "known"),
    Bad("tags, unknown partition", ApplicationRetagged("rm", "x", TAGS, "nowhere"), "application"),
    Bad("tags, manager unknown", ApplicationRetagged("stranger", "x", TAGS), "regist"),
    Bad(
        "tags, quota is no number",
        ApplicationRetagged("rm", "x", {"namespace.resourcequota": '{"vcore":"1.5"}'}),
        "namespace.resourcequota",
    ),
    Bad("node twice", NodeAdded("rm", "n1", TEN), "n1"),
    Bad("node, empty id", NodeAdded("rm", "", TEN), "node"),
    Bad("node, unknown partition", NodeAdded("rm", "n2", TEN, partition="nowhere"), "partition"),
    Bad("node, negative capacity", NodeAdded("rm", "n2", NEGATIVE), "memory"),
    Bad("node, huge capacity", NodeAdded("rm", "n2", HUGE), "memory"),
    Bad("node, total too large", NodeAdded("rm", "n2", NEARLY_HUGE), "memory"),
    Bad("node, manager unknown", NodeAdded("stranger", "n2", TEN), "regist"),
    Bad("update before registration", NodeUpdated("rm", "n9", TEN), "n9"),
    Bad("update, negative capacity", NodeUpdated("rm", "n1", NEGATIVE), "memory"),
    Bad("update, node of another manager", NodeUpdated("other", "n1", TEN), "n1"),
    Bad("update, unknown partition", NodeUpdated("rm", "n1", TEN, "nowhere"), "partition"),
    Bad("drain, unknown node", NodeDrained("rm", "n9"), "n9"),
    Bad("enable, unknown node", NodeEnabled("rm", "n9"), "n9"),
    Bad("remove, unknown node", NodeRemoved("rm", "n9"), "n9"),
]

NOT_REJECTED: list[tuple[str, Event]] = [
    ("release, unknown key", ReleaseRequested("rm", "x", "nothing")),
    ("release, unknown application", ReleaseRequested("rm", "nobody", "runs")),
    ("release, unknown partition", ReleaseRequested("rm", "x", "runs", "nowhere")),
    ("release, key of another application", ReleaseRequested("rm", "y", "runs")),
    ("release, unknown foreign pod", ReleaseRequested("rm", "", "nothing")),
    ("release, manager unknown", ReleaseRequested("stranger", "x", "runs")),
    ("release, application of another manager", ReleaseRequested("other", "x", "runs")),
    ("remove, unknown application", ApplicationRemoved("rm", "nobody")),
    ("remove, application of another manager", ApplicationRemoved("other", "x")),
    ("sync, manager unknown", SyncCompleted("stranger")),
    ("veto, unknown decision", VictimVetoed("rm", "d1", "runs")),
]


@pytest.fixture
def core() -> Core:
    """Provide a core where `runs` has its node, `waits` waits, and `foreign` is another scheduler's."""
    root = QueueSpec(
        name="root",
        parent=True,
        submit_acl=Acl(everyone=True),
        children=(QueueSpec(name="a"), QueueSpec(name="b")),
    )
    rules = (PlacementRule(kind="provided"),)
    core = Core(Configuration((PartitionSpec("default", root, rules),)))
    events: Iterable[Event] = (
        ManagerRegistered("rm"),
        ManagerRegistered("other"),
        NodeAdded("rm", "n1", (("memory", 30),)),
        ApplicationAdded("rm", "x", "root.a"),
        ApplicationAdded("rm", "y", "root.b"),
        ForeignAdded("rm", "foreign", "n1", (("memory", 5),)),
        AskAdded("rm", "runs", "x", AskSpec(TEN)),
        AskAdded("rm", "waits", "x", AskSpec((("memory", 100),))),
    )
    for event in events:
        assert not _rejections(core.handle(event, NOW))
    assert placements(run(core, NOW)) == [("runs", "n1")]
    return core


def _rejections(decisions: Iterable[Decision]) -> list[str]:
    kinds = (AskRejected, ApplicationRejected, ApplicationUpdateRejected, NodeRejected)
    return [each.reason for each in decisions if isinstance(each, kinds)]


def _works_on(core: Core) -> None:
    core.validate()
    core.handle(AskAdded("rm", "good", "y", AskSpec(TEN)), NOW + 1)
    assert placements(run(core, NOW + 1)) == [("good", "n1")]
    core.validate()


@pytest.mark.parametrize("bad", REJECTED, ids=[bad.name for bad in REJECTED])
def test_a_rejection_names_the_field_and_changes_nothing(core: Core, bad: Bad) -> None:
    before = core.digest()
    reasons = _rejections(core.handle(bad.event, NOW))
    assert len(reasons) == 1
    assert bad.names in reasons[0].lower()
    assert core.digest() == before
    _works_on(core)


@pytest.mark.parametrize(("name", "event"), NOT_REJECTED, ids=[name for name, _ in NOT_REJECTED])
def test_what_has_no_rejection_on_the_wire_changes_nothing(
    core: Core, name: str, event: Event
) -> None:
    before = core.digest()
    assert not _rejections(core.handle(event, NOW)), name
    assert core.digest() == before
    _works_on(core)


def test_the_release_of_an_unknown_key_is_noted(core: Core) -> None:
    noted = core.handle(ReleaseRequested("rm", "x", "nothing"), NOW)
    codes = [each.code for each in noted if isinstance(each, Noted)]
    assert codes == [Code.RELEASE_UNKNOWN]


@pytest.mark.parametrize("termination", list(Termination))
def test_every_termination_type_ends_an_allocation_or_puts_it_back(
    core: Core, termination: Termination
) -> None:
    core.handle(ReleaseRequested("rm", "x", "runs", termination=termination), NOW)
    core.validate()
    run(core, NOW)
    _works_on(core)


def test_the_total_of_a_type_stays_below_the_limit(core: Core) -> None:
    """Each quantity is allowed, the running total is not: the one that passes it is refused (design 6.13)."""
    half: Resource = (("memory", QUANTITY_LIMIT // 2),)
    refused = [
        _rejections(core.handle(AskAdded("rm", f"k{number}", "x", AskSpec(half)), NOW))
        for number in range(3)
    ]
    assert not refused[0]
    assert refused[-1]
    core.validate()


def test_a_bad_host_port_is_refused_or_simply_never_fits(core: Core) -> None:
    for number, port in enumerate((-1, 0, 70_000)):
        spec = AskSpec(TEN, constraints=Constraints(host_ports=(HostPort(port),)))
        core.handle(AskAdded("rm", f"p{number}", "y", spec), NOW)
        core.validate()
    run(core, NOW)
    core.validate()


def test_digest_tells_states_apart(core: Core) -> None:
    before = core.digest()
    core.handle(AskAdded("rm", "good", "y", AskSpec(TEN)), NOW)
    assert core.digest() != before


def test_digest_is_the_same_for_the_same_history() -> None:
    def told() -> str:
        core = Core()
        core.handle(ManagerRegistered("rm"), NOW)
        core.handle(NodeAdded("rm", "n1", TEN), NOW)
        core.tick(NOW)
        return core.digest()

    assert told() == told()
