"""A manager that is gone: the core forgets it only when nothing of it is left and it has not registered again."""

from server.core.core import Core
from server.model.events import ManagerForgotten, ManagerRegistered, NodeAdded
from server.model.quota import DEFAULT_CONFIGURATION

NOW = 1_700_000_000_000


def test_what_left_nothing_behind_is_forgotten_and_configures_no_longer() -> None:
    core = Core()
    core.handle(ManagerRegistered("gone", configuration=DEFAULT_CONFIGURATION), NOW)
    assert core.state.configured_by == "gone"
    core.handle(ManagerForgotten("gone", NOW), NOW + 1)
    assert not core.state.managers
    core.handle(ManagerRegistered("next", configuration=DEFAULT_CONFIGURATION), NOW + 2)
    assert core.state.configured_by == "next"


def test_what_has_a_node_or_registered_since_stays() -> None:
    core = Core()
    for name in ("holds", "new"):
        core.handle(ManagerRegistered(name), NOW)
    core.handle(NodeAdded("holds", "n", (("vcore", 1),)), NOW)
    for name in ("holds", "new", "absent"):
        core.handle(ManagerForgotten(name, NOW - (name == "new")), NOW + 1)
    assert list(core.state.managers) == ["holds", "new"]
