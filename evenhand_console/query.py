"""The choices of a visitor on a page. All choices are in the address of the page."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

VALUE_MAX: Final = 1024
"""The largest length of a parameter's value, in characters. A longer value is ignored."""


@dataclass(frozen=True, slots=True)
class Query:
    """The path of a view, and the values of its parameters.

    A parameter that is missing in the address has its default value.
    """

    path: str
    values: tuple[tuple[str, str], ...]
    defaults: Mapping[str, str] = field(hash=False, compare=False)

    def __getitem__(self, name: str) -> str:
        """Return the value of a parameter."""
        return dict(self.values)[name]

    def href(self, **changes: str) -> str:
        """Return the address of this view with other values of some parameters."""
        return address(self.path, dict(self.values) | changes, self.defaults)

    @property
    def live(self) -> str:
        """The address of the stream of this page."""
        return f"/live{self.href()}"

    def hidden(self, *shown: str) -> list[tuple[str, str]]:
        """Return the parameters that a form has to pass on in hidden fields.

        A parameter is passed on if the form does not show it, and if its value is not the default.
        """
        return [
            (name, value)
            for name, value in self.values
            if name not in shown and value != self.defaults[name]
        ]


def query_of(path: str, defaults: Mapping[str, str], given: Iterable[tuple[str, str]]) -> Query:
    """Return the view and the choices that an address describes.

    Unknown parameters and values that are too long are ignored.
    """
    known = {name: value for name, value in given if name in defaults and len(value) <= VALUE_MAX}
    return Query(
        path, tuple((name, known.get(name, defaults[name])) for name in defaults), defaults
    )


def address(path: str, values: Mapping[str, str], defaults: Mapping[str, str]) -> str:
    """Return an address without the parameters that have their default values."""
    other = {name: value for name, value in values.items() if value != defaults.get(name, "")}
    return f"{path}?{urlencode(other)}" if other else path
