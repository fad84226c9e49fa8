"""One way to damage the books, and what the message about it has to name."""

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


def expect_found(books: Any, damage: Damage) -> None:
    """Assert that the books are valid before the damage and not after, and that the message names the damage."""
    validate(books)
    damage.does(books)
    with pytest.raises(AssertionError, match=damage.names):
        validate(books)


def put(owner: Any, **fields: Any) -> None:
    """Set fields, as an expression."""
    for name, value in fields.items():
        setattr(owner, name, value)


def bump(amounts: list[int], by: int = 1) -> None:
    """Change the first type of an amount."""
    amounts[0] += by


def group_of(books: Any, key: str) -> Any:
    """Return the group or job in which an ask waits."""
    return books.asks[key].group


def class_of(books: Any, key: str) -> Any:
    """Return the equivalence class of an ask."""
    return books.asks[key].ask_class
