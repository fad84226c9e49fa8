"""A manager that asks to be forgotten loses its former objects, at once or in parts before the registration (design 1.10)."""

import pytest

from server.core.core import Core
from server.model.decisions import Decision
from server.model.events import Event, ManagerRegistered, ManagerWiped, NodeAdded
from tests.simulation.restarts import Life

AGAIN = ManagerRegistered("rm", explicit_sync=True, forget=True)


class Lived(Life):
    """A cluster in the midst of claims and lowered quotas; the shim does not register again before the test wants it."""

    def restart(self) -> None:
        """Nothing: the test does it."""


def lived(seed: int) -> tuple[Core, int]:
    """Return a core with pods, asks and decisions under way, and its instant. The same seed gives the same core."""
    life = Lived(seed)
    for _ in range(12):
        life.now += 1_500
        life._claim()
        life.tick()
    return life.core, life.now


def after(seed: int, *events: Event) -> tuple[str, list[Decision]]:
    """Return the digest after these events at once, and what was decided by them."""
    core, now = lived(seed)
    decisions = core.take(events, now)
    core.validate()
    decisions += core.tick(now).decisions
    return core.digest(), decisions


@pytest.mark.parametrize("most", [1, 3, 10, 1_000])
@pytest.mark.parametrize("seed", range(4))
def test_in_parts_the_same_is_left_and_the_same_is_told(seed: int, most: int) -> None:
    whole, told = after(seed, AGAIN)
    for parts in (1, 4, 100):
        digest, decisions = after(seed, *[ManagerWiped("rm", most)] * parts, AGAIN)
        assert digest == whole
        assert _said(decisions) == _said(told)


def _said(decisions: list[Decision]) -> list[str]:
    """Return what is told, in order; a decision that ends after its manager was wiped names none any more."""
    return sorted(repr(one._replace(rm_id="")) for one in decisions)


def test_a_part_ends_no_more_than_it_says() -> None:
    core, now = lived(0)
    applications = core.state.partitions["default"].applications.values()

    def there() -> int:
        return sum(len(one.asks) + len(one.allocations) for one in applications)

    before = there()
    core.take([ManagerWiped("rm", 5)], now)
    assert there() == before - 5
    assert core.take([ManagerWiped("unknown", 5)], now) == []
    assert there() == before - 5
    core.validate()


def test_a_core_may_decide_between_two_parts() -> None:
    core, now = lived(1)
    for _ in range(4):
        core.take([ManagerWiped("rm", 3)], now)
        core.tick(now)
        core.validate()
    core.take([AGAIN, NodeAdded("rm", "n", (("vcore", 1_000),))], now)
    core.tick(now)
    core.validate()
