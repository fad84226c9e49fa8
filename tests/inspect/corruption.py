"""A way to damage the state, and the words that the message about the damage must contain."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from server.state.invariants.check import validate


@dataclass(frozen=True)
class Damage:
    """A damage: `does` is called with the partition, `names` is a pattern for the message."""

    title: str
    names: str
    does: Callable[[Any], object]

    def __str__(self) -> str:
        return self.title


def expect_found(partition: Any, damage: Damage) -> None:
    """Assert that the state is valid before the damage and invalid after it, and that the message names the damage."""
    validate(partition)
    damage.does(partition)
    with pytest.raises(AssertionError, match=damage.names):
        validate(partition)


def put(owner: Any, **fields: Any) -> None:
    """Set fields of an object; this is a function, so that expressions can use it."""
    for name, value in fields.items():
        setattr(owner, name, value)


def bump(amounts: list[int], by: int = 1) -> None:
    """Add a number to the amount of the first resource type."""
    amounts[0] += by


def group_of(partition: Any, key: str) -> Any:
    """Return the group or job in which an ask waits."""
    return partition.asks[key].group


def class_of(partition: Any, key: str) -> Any:
    """Return the equivalence class of an ask."""
    return partition.asks[key].ask_class
