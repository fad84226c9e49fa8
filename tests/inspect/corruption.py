"""One way to damage the state, and what the message about it has to name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from server.state.invariants.check import validate


@dataclass(frozen=True)
class Damage:
    """``does`` takes the partition, untyped; ``names`` is a pattern."""

    title: str
    names: str
    does: Callable[[Any], object]

    def __str__(self) -> str:
        return self.title


def expect_found(partition: Any, damage: Damage) -> None:
    """Assert that the state are valid before the damage and not after, and that the message names the damage."""
    validate(partition)
    damage.does(partition)
    with pytest.raises(AssertionError, match=damage.names):
        validate(partition)


def put(owner: Any, **fields: Any) -> None:
    """Set fields, as an expression."""
    for name, value in fields.items():
        setattr(owner, name, value)


def bump(amounts: list[int], by: int = 1) -> None:
    """Change the first type of an amount."""
    amounts[0] += by


def group_of(partition: Any, key: str) -> Any:
    """Return the group or job in which an ask waits."""
    return partition.asks[key].group


def class_of(partition: Any, key: str) -> Any:
    """Return the equivalence class of an ask."""
    return partition.asks[key].ask_class
