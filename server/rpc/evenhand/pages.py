"""The pages of a listing.

The token of a page is the number of objects on the pages before it. In a listing from a database, the token is the key of the
last object on the previous page. A page of a listing from a database begins with the first object after the key in the token.
"""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from server.rpc.errors import invalid
from server.rpc.limits import PAGE_MAX

_Item = TypeVar("_Item")
_DIGITS_MAX: Final = 12
_NUMBER_MAX: Final = 2**63 - 1
_TOKEN_MAX: Final = 8_192
"""The largest number of characters of a token that has a key."""

Key = tuple[int | str, ...]
"""The key of an object: the values by which its listing is ordered."""


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
    size = size_of(size)
    if token and not (token.isascii() and token.isdigit() and len(token) <= _DIGITS_MAX):
        raise invalid("INVALID_PAGE", ("page_token", "is not a token of this server"))
    return Page(int(token or 0), size)


def size_of(size: int) -> int:
    """Return the number of objects on a page.

    A size of 0, or above the limit, gives the largest page. Raise CallError for a negative size.
    """
    if size < 0:
        raise invalid("INVALID_PAGE", ("page_size", f"{size} is negative"))
    return min(size or PAGE_MAX, PAGE_MAX)


def token_after(key: Key) -> str:
    """Return the token of the page that begins after the object with this key."""
    text = json.dumps(key, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode()


def key_in(token: str, kinds: Sequence[type]) -> Key | None:
    """Return the key in a token, None for "". Raise CallError unless the token has a key with values of the types ``kinds``."""
    if not token:
        return None
    try:
        data = base64.b64decode(token[:_TOKEN_MAX], altchars=b"-_", validate=True)
        key = tuple(json.loads(data))
    except (binascii.Error, ValueError, TypeError, RecursionError):
        key = ()
    if [type(one) for one in key] != [*kinds] or not all(map(_is_storable, key)):
        raise invalid("INVALID_PAGE", ("page_token", "is not a token of this server"))
    return key


def _is_storable(one: int | str) -> bool:
    """Return whether a database can compare a value with the values that it stores."""
    return one.isprintable() if isinstance(one, str) else 0 <= one <= _NUMBER_MAX
