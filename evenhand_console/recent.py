"""A table of limited size, in which new values replace those that were used longest ago."""

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """A table with at most ``most`` values. When a further value is made, the value that was used longest ago is dropped."""

    def __init__(self, most: int, make: Callable[[], Value]) -> None:
        """Make an empty table. ``make`` returns the value of a key that is not in the table."""
        self._most = most
        self._make = make
        self._values: dict[Key, Value] = {}

    def of(self, key: Key) -> Value:
        """Return the value of a key, and record that this value was used last."""
        value = self._values.pop(key) if key in self._values else self._make()
        self._values[key] = value
        if len(self._values) > self._most:
            del self._values[next(iter(self._values))]
        return value
