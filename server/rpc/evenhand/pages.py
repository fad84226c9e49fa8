"""The pages of a listing. The token of a page is the number of objects on the pages before it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from server.rpc.errors import invalid
from server.rpc.limits import PAGE_MAX

_Item = TypeVar("_Item")
_DIGITS_MAX: Final = 12


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing: the index of its first object, and the largest number of objects."""

    start: int
    size: int

    def read(self, rows: Callable[[int, int], Sequence[_Item]]) -> tuple[Sequence[_Item], str]:
        """Return the rows of the page and the token of the next page.

        `rows(start, size)` reads the rows. The token is "" if this is the last page.
        """
        found = rows(self.start, self.size + 1)
        if len(found) <= self.size:
            return found, ""
        return found[: self.size], str(self.start + self.size)


def wanted(size: int, token: str) -> Page:
    """Return the page that a request asks for.

    A size of 0, or above the limit, gives the largest page. Raise CallError for a negative size and for an unknown token.
    """
    if size < 0:
        raise invalid("INVALID_PAGE", ("page_size", f"{size} is negative"))
    if token and not (token.isascii() and token.isdigit() and len(token) <= _DIGITS_MAX):
        raise invalid("INVALID_PAGE", ("page_token", "is not a token of this server"))
    return Page(int(token or 0), min(size or PAGE_MAX, PAGE_MAX))
