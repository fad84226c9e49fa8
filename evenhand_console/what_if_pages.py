"""The pages for what-if questions: forms for pods and configurations, the answers, and the form that puts a text in force."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import grpc
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evenhand_cli.connect import Core
from evenhand_cli.faults import Fault
from evenhand_console import what_if
from evenhand_console.parts import number
from evenhand_console.protection import TRIED_S, Proof
from evenhand_console.reading import Found, status_of
from evenhand_console.refusals import Refusal, refusal_of

PATH: Final = "/what-if"
TITLE: Final = "What if"
NOT_TRIED: Final = Refusal(
    409,
    "Nothing was applied",
    "A configuration is applied only after its answer was shown, and this text has none, or another one.",
    advice="Go back, try the text, and apply it from the answer.",
)
OLD: Final = Fault(
    f"Nothing was applied: the answer is older than {TRIED_S // 60} minutes",
    advice="Try the text once more: the cluster may have changed. Your text is below.",
)

Read = TypeVar("Read")
FormHandler = Callable[[Request, dict[str, str]], Awaitable[Response]]


class Desk(Protocol):
    """The methods of the application that these pages use."""

    async def text_form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form with a text. Raises Fault if the core does not know the visitor."""

    async def ask(self, request: Request, read: Callable[[Core], Read]) -> Found[Read]:
        """Return the result of a function that reads from the core with the token of the visitor.

        Raises Fault if the core does not answer or refuses.
        """

    async def own_page(
        self, request: Request, title: str, name: str, status: int = ..., **values: object
    ) -> Response:
        """Return a page that is made for one visitor."""

    def refused(self, request: Request, refusal: Refusal) -> Response:
        """Return a page that says why the requested page cannot be shown."""

    def tried(self, request: Request, text: str, base: tuple[int, str]) -> str:
        """Return the proof that the visitor has seen the changes that a text would make."""

    def proven(self, request: Request, text: str, base: tuple[int, str], given: str) -> Proof:
        """Return whether a proof shows that the visitor has seen the answer about a text."""


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """The entry of these pages in the menu."""

    title: str
    path: str


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page."""

    present: what_if.Present | None
    given: what_if.Given
    pods: what_if.PodsAnswer | None = None
    answer: what_if.ConfigurationAnswer | None = None
    problem: Fault | None = None
    tried: str = ""
    applied: int = 0
    """The revision that the form has put in force; 0 if no revision was put in force."""
    not_kept: str = ""


ENTRY: Final = MenuEntry(TITLE, PATH)
EXAMPLE: Final = "asks:\n  - {queue: root.default, resources: {vcore: 2, memory: 4Gi}}\n"


class WhatIf:
    """The handlers of the pages."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        """Return the routes of the pages."""
        return [
            Route(PATH, self.start),
            Route(f"{PATH}/pods", self._of_form(self.pods), methods=["POST"]),
            Route(f"{PATH}/configuration", self._of_form(self.configuration), methods=["POST"]),
            Route(f"{PATH}/apply", self._of_form(self.apply), methods=["POST"]),
        ]

    def _of_form(self, handler: FormHandler) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler of requests that reads the form and passes its fields to `handler`.

        If the core does not know the visitor, the handler returns a page with this refusal.
        """

        async def handle(request: Request) -> Response:
            try:
                fields = await self._desk.text_form(request)
            except Fault as fault:
                return self._desk.refused(request, refusal_of(fault))
            return await handler(request, fields)

        return handle

    async def start(self, request: Request) -> Response:
        """Show the form for pods and the form for a configuration.

        If the address has `revision`, the editor has the text of this revision from the history.
        """
        revision = number(request.query_params.get("revision", ""))
        try:
            found = await self._desk.ask(request, lambda core: what_if.present(core, revision))
        except Fault as fault:
            return self._desk.refused(request, refusal_of(fault))
        queue = request.query_params.get("queue", "")[:1024]
        page = Page(found.value, what_if.Given(EXAMPLE, queue))
        return await self._shown(request, page, found.notices)

    async def pods(self, request: Request, fields: dict[str, str]) -> Response:
        """Show the outcome for the pods of the form."""
        given = what_if.Given(
            what_if.unified(fields.get("text", "")),
            fields.get("queue", ""),
            fields.get("namespace", ""),
            fields.get("priority", ""),
        )

        def read(core: Core) -> Page:
            present = what_if.present(core, 0)
            try:
                return Page(present, given, pods=what_if.simulated(core, given))
            except Fault as fault:
                if status_of(fault) not in {None, grpc.StatusCode.INVALID_ARGUMENT}:
                    raise
                return Page(present, given, problem=fault)

        return await self._answered(request, read)

    async def configuration(self, request: Request, fields: dict[str, str]) -> Response:
        """Show the effects of the form's configuration, next to the present state."""
        edited = _edited(fields)

        def read(core: Core) -> Page:
            return self._page_of(request, edited, what_if.tried(core, edited.text))

        return await self._answered(request, read)

    def _page_of(
        self, request: Request, edited: what_if.Present, answer: what_if.ConfigurationAnswer
    ) -> Page:
        is_base = (answer.base_revision, answer.base_digest) == edited.identity
        is_tried = answer.valid and is_base
        proof = self._desk.tried(request, edited.text, edited.identity) if is_tried else ""
        return Page(edited, what_if.Given(EXAMPLE), answer=answer, tried=proof)

    async def apply(self, request: Request, fields: dict[str, str]) -> Response:
        """Put a text in force, if the visitor has seen the answer that lists its changes."""
        edited, given = _edited(fields), fields.get("tried", "")
        proof = self._desk.proven(request, edited.text, edited.identity, given)
        if proof is Proof.NONE:
            return self._desk.refused(request, NOT_TRIED)
        if proof is Proof.OLD:
            return await self._shown(request, Page(edited, what_if.Given(EXAMPLE), problem=OLD), ())

        def read(core: Core) -> Page:
            try:
                done = what_if.applied(core, edited)
            except Fault as fault:
                if status_of(fault) is not grpc.StatusCode.ABORTED:
                    raise
                return Page(edited, what_if.Given(EXAMPLE), problem=fault)
            now = what_if.present(core, 0)
            number_of = done.revision if done.applied else 0
            return Page(now, what_if.Given(EXAMPLE), applied=number_of, not_kept=done.not_kept)

        return await self._answered(request, read)

    async def _answered(self, request: Request, read: Callable[[Core], Page]) -> Response:
        try:
            found = await self._desk.ask(request, read)
        except Fault as fault:
            return self._desk.refused(request, refusal_of(fault))
        return await self._shown(request, found.value, found.notices)

    async def _shown(self, request: Request, page: Page, notices: tuple[str, ...]) -> Response:
        status = 409 if page.problem is not None else 200
        return await self._desk.own_page(
            request, TITLE, "what_if", status, page=page, notices=notices
        )


def _edited(fields: dict[str, str]) -> what_if.Present:
    """Return the text of a form, with the revision and the digest of the configuration from which the text was made."""
    return what_if.Present(
        revision=number(fields.get("base_revision", "")),
        digest=fields.get("base_digest", ""),
        text=what_if.unified(fields.get("yaml", "")),
        origin=fields.get("origin", "")[:1024],
    )
