"""Listings that the core answers in pages."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

import grpc

from evenhand_cli.connect import Core

PAGE_SIZE = 1000
PAGE_SIZE_MAX = 5000
"""Largest page that a core sends. With larger pages, a listing takes less time in total, but its first rows arrive later."""


class PagedRequest(Protocol):
    """A request for one page."""

    page_size: int
    page_token: str


class Page(Protocol):
    """An answer that holds one page."""

    @property
    def next_page_token(self) -> str:
        """The token of the next page; empty on the last page."""


Request = TypeVar("Request", bound=PagedRequest)
Answer = TypeVar("Answer", bound=Page)
Row = TypeVar("Row")


def every(
    core: Core,
    method: "grpc.UnaryUnaryMultiCallable[Request, Answer]",
    request: Request,
    rows: Callable[[Answer], Iterable[Row]],
    size: int = PAGE_SIZE,
) -> list[Row]:
    """Return the rows of all pages of a listing. The function sets the size and the token of the page in the request.

    Raises Fault if the core does not answer or refuses.
    """
    found: list[Row] = []
    request.page_size = size
    with core.patience(f"reading from {core.address}") as tell:
        while True:
            with core.faults():
                page = method(request, timeout=core.timeout_s, metadata=core.metadata)
            found += rows(page)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
            tell(f"reading from {core.address}: {len(found):,} so far")
    core.pictures.look_at(page)
    return found
