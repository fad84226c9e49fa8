"""The epoch of a registration is part of the state, and an older one changes nothing (design 7.2)."""

import random
from itertools import pairwise

import pytest

from server.core.core import Core
from server.model.decisions import Noted
from server.model.events import ManagerRegistered, ManagerWiped, NodeAdded
from server.model.reasons import Code
from server.model.resources import resource

NOW = 1_700_000_000_000


def registered(core: Core, epoch: int, instance: str = "one") -> set[Code]:
    """Register, and return the codes of the notes."""
    decisions = core.handle(ManagerRegistered("rm", epoch=epoch, instance=instance), NOW)
    return {one.code for one in decisions if isinstance(one, Noted)}


def with_node(epoch: int) -> Core:
    core = Core()
    registered(core, epoch)
    core.handle(NodeAdded("rm", "n1", resource({"memory": 10})), NOW)
    return core


def test_the_digest_has_the_epoch_and_the_process() -> None:
    cores = [Core() for _ in range(3)]
    for core, epoch, instance in zip(cores, (1, 2, 2), ("one", "one", "two"), strict=True):
        registered(core, epoch, instance)
    assert len({core.digest() for core in cores}) == 3


@pytest.mark.parametrize(("epoch", "instance"), [(4, "one"), (0, "one"), (5, "two")])
def test_a_refused_registration_changes_nothing(epoch: int, instance: str) -> None:
    core = with_node(5)
    before = core.digest()
    assert registered(core, epoch, instance) == {Code.EPOCH_OLD}
    assert core.digest() == before
    core.validate()


def test_a_wipe_of_an_older_epoch_changes_nothing() -> None:
    core = with_node(5)
    before = core.digest()
    assert core.handle(ManagerWiped("rm", 10, epoch=4), NOW) == []
    assert core.digest() == before


@pytest.mark.parametrize("seed", range(20))
def test_the_epoch_never_falls(seed: int) -> None:
    dice = random.Random(seed)
    core = Core()
    seen = []
    for _ in range(50):
        epoch, instance = dice.randrange(6), dice.choice("ab")
        before = core.managers.get("rm")
        codes = registered(core, epoch, instance)
        now = core.managers["rm"]
        seen.append(now.epoch)
        if Code.EPOCH_OLD in codes:
            assert now is before
        else:
            assert (now.epoch, now.instance) == (epoch, instance)
    assert all(one <= two for one, two in pairwise(seen)), seed
