"""The web application: a page and a stream for each view, the log-in, and the files of `static`."""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, cast

import anyio
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from evenhand.v1 import inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core
from evenhand_cli.faults import Fault
from evenhand_console import refusals, what_if_pages
from evenhand_console.forms import FORM_MAX, TEXT_MAX, Texts, check_length, fields_of
from evenhand_console.identity import (
    SESSION,
    THEMES,
    Cookies,
    checked_token,
    cookies_of,
    new_session,
    proxy_token,
)
from evenhand_console.pages import FOLDER, Pages
from evenhand_console.protection import (
    Hosts,
    Proof,
    Protected,
    Tried,
    form_mark,
    is_own_origin,
    proven,
    same_mark,
    says_own_origin,
    tried_mark,
)
from evenhand_console.query import Query, query_of
from evenhand_console.reading import Found, Source
from evenhand_console.refusals import Refusal, refusal_of
from evenhand_console.sharing import Fragment, Key, Readers, TooManyError
from evenhand_console.stale_forms import TITLE, StaleFormError, page_of
from evenhand_console.streams import stream_of
from evenhand_console.view import View
from evenhand_console.views import VIEWS
from evenhand_console.waking import Kinds, Waking

Read = TypeVar("Read")
UNAUTHORIZED: Final = 401
"""HTTP status of a page that asks the visitor to log in. Such a page is not updated while it is open."""
THREADS_MAX: Final = 12
"""The largest number of simultaneous reads of the core for pages that are kept up to date."""
ASKS_MAX: Final = 8
"""The largest number of simultaneous reads of the core for other purposes, such as simulations, which may take minutes."""


@dataclass(frozen=True, slots=True)
class Options:
    """The addresses at which browsers reach the console, and the name of the proxy's header with the visitor's token.

    The name is empty if no proxy sends tokens. ``clock`` returns seconds that never decrease.
    """

    hosts: Hosts
    clock: Callable[[], float]
    token_header: str = ""


class Console:
    """The state of the application: the templates, the readers of pages, and the secret for the marks of forms.

    The mark of a form is a hidden text that shows that the console itself made the form.
    """

    def __init__(self, source: Source, options: Options) -> None:
        self.options = options
        self._source = source
        self._secret = secrets.token_bytes(32)
        self._texts = Texts()
        self._threads = anyio.CapacityLimiter(THREADS_MAX)
        self._asks = anyio.CapacityLimiter(ASKS_MAX)
        self._views = {one.name: one for one in VIEWS}
        menu = [*(one for one in VIEWS if one.in_menu), what_if_pages.ENTRY]
        self.pages = Pages({"menu": menu, "themes": THEMES})
        self.readers = Readers(self._make, lambda key: self._views[key.view].pause_s)
        self.readers.tokens = Waking(source, self._wake)

    def token(self, request: Request) -> str:
        """Return the token of a visitor: the token of the log-in, or else the token in the proxy's header."""
        kept = self._cookies(request).kept_token(request)
        return kept or proxy_token(request, self.options.token_header)

    def _cookies(self, request: Request) -> Cookies:
        return cookies_of(request, self.options.hosts)

    def _wake(self, token: str, kinds: Kinds) -> None:
        """Wake the readers of a token's pages that are read after one of these kinds of events.

        Without kinds, wake the readers of all pages of the token.
        """

        def concerns(key: Key) -> bool:
            of_view = self._views[key.view].kinds
            return not kinds or not of_view or not of_view.isdisjoint(kinds)

        self.readers.wake(token, concerns)

    async def _make(self, key: Key, latest: Fragment | None) -> Fragment:
        """Read from the core, and render the part of a page that changes with the state of the core."""
        return await anyio.to_thread.run_sync(self._made, key, latest, limiter=self._threads)

    def _made(self, key: Key, latest: Fragment | None) -> Fragment:
        view = self._views[key.view]
        try:
            found = self._source.read(key.token, lambda core: view.read(core, key.query))
            shown = view.shape(found.value, key.query)
        except Fault as fault:
            return self.pages.refused(refusal_of(fault), latest)
        return self.pages.fragment(
            view.name, found.read_at, page=shown, query=key.query, notices=found.notices
        )

    async def page(self, request: Request, view: View[Any]) -> Response:
        """Return the whole page of a view."""
        query = query_of(view.path, view.parameters, request.query_params.multi_items())
        try:
            fragment = await self.readers.latest(Key(view.name, query, self.token(request)))
        except TooManyError:
            fragment = self.pages.refused(refusals.TOO_MANY)
        return self.shown(request, view.title, fragment, query)

    async def live(self, request: Request, view: View[Any]) -> Response:
        """Return the stream that sends each change of the page of a view."""
        query = query_of(view.path, view.parameters, request.query_params.multi_items())
        key = Key(view.name, query, self.token(request))
        return stream_of(self.readers.follow(key, request.headers.get("last-event-id", "")))

    def shown(
        self, request: Request, title: str, fragment: Fragment, query: Query | None = None
    ) -> Response:
        """Return a whole page that contains the given changing part."""
        cookies, session = self._cookies(request), self._session(request)
        html = self.pages.whole(
            "layout.html",
            title=title,
            fragment=Markup(fragment.html),  # noqa: S704 -- a rendered template
            fragment_id=fragment.id,
            query=None if fragment.status == UNAUTHORIZED else query,
            here=_address(request),
            theme=cookies.theme(request),
            mark=form_mark(self._secret, session),
            logged_in=bool(cookies.kept_token(request)),
        )
        response = HTMLResponse(html, fragment.status)
        if not cookies.session(request.cookies):
            cookies.write(response, SESSION, session)
        return response

    def _session(self, request: Request) -> str:
        """Return the session of a browser, or a new session if the browser has none."""
        if not hasattr(request.state, "session"):
            known = self._cookies(request).session(request.cookies)
            request.state.session = known or new_session()
        return cast("str", request.state.session)

    async def ask(self, request: Request, read: Callable[[Core], Read]) -> Found[Read]:
        """Return the result of a function that sends requests to the core that decides, with the token of the visitor.

        Raises Fault if the core does not answer or refuses.
        """
        token = self.token(request)
        return await anyio.to_thread.run_sync(
            lambda: self._source.ask(token, read), limiter=self._asks
        )

    async def own_page(
        self, request: Request, title: str, name: str, status: int = 200, **values: object
    ) -> Response:
        """Return a page that is made for one visitor.

        A separate thread renders the page, so that a long text delays no other page.
        """
        return await anyio.to_thread.run_sync(
            partial(self._own_page, request, title, name, status, **values)
        )

    def _own_page(
        self, request: Request, title: str, name: str, status: int, **values: object
    ) -> Response:
        """Render a page that is made for one visitor.

        The forms of the page contain the mark of the visitor's session.
        """
        mark = form_mark(self._secret, self._session(request))
        made = self.pages.fragment(name, "", mark=mark, **values)
        return self.shown(request, title, Fragment(made.html, status))

    def tried(self, request: Request, text: str, base: tuple[int, str]) -> str:
        """Return the proof that the visitor has seen the changes that a text would make to the configuration `base`."""
        seen = Tried(self._session(request), self.token(request), base, text)
        return tried_mark(self._secret, seen, self.options.clock())

    def proven(self, request: Request, text: str, base: tuple[int, str], given: str) -> Proof:
        """Return whether a proof shows that the visitor has seen the changes that a text would make.

        The changes are those to the configuration `base`.
        """
        seen = Tried(self._session(request), self.token(request), base, text)
        return proven(self._secret, seen, self.options.clock(), given)

    async def stale(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Return the page on which a form with an old mark can be sent again.

        A separate thread examines the text of the form, which may be long.
        """
        back = own_path(fields.get("next", ""))
        page = await anyio.to_thread.run_sync(page_of, request.url.path, fields, back)
        return await self.own_page(request, TITLE, "stale", 409, page=page)

    def refused(self, request: Request, refusal: Refusal) -> Response:
        """Return a page that says why the requested page cannot be shown."""
        return self.shown(request, refusal.title, self.pages.refused(refusal))

    async def form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form of the console.

        Raises HTTPException if the form comes from another site or is too large, and StaleFormError if the mark of
        the form is old.
        """
        return await self._form(request, FORM_MAX)

    async def text_form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form with a text. Raises the errors of `form`, and Fault if the core does not know the visitor."""
        await self.ask(request, _known)
        async with self._texts.one():
            return await self._form(request, TEXT_MAX)

    async def _form(self, request: Request, most: int) -> dict[str, str]:
        session = self._cookies(request).session(request.cookies)
        if not session or not is_own_origin(request.headers, self.options.hosts.origins):
            raise HTTPException(403)
        check_length(request, most)
        fields = await fields_of(request, most)
        if not same_mark(form_mark(self._secret, session), fields.get("mark", "")):
            if says_own_origin(request.headers, self.options.hosts.origins):
                raise StaleFormError(fields)
            raise HTTPException(403)
        return fields

    async def log_in(self, request: Request) -> Response:
        """Store the token of the form in a cookie of this browser.

        The core decides at each read which data the token may see.
        """
        fields = await self.form(request)
        response = RedirectResponse(own_path(fields.get("next", "")), 303)
        cookies = self._cookies(request)
        cookies.keep_token(response, checked_token(fields.get("token", "")))
        cookies.new_session(response)
        return response

    async def log_out(self, request: Request) -> Response:
        """Delete the token that a cookie of this browser stores."""
        fields = await self.form(request)
        response = RedirectResponse(own_path(fields.get("next", "")), 303)
        cookies = self._cookies(request)
        cookies.forget_token(response)
        cookies.new_session(response)
        return response

    async def choose_theme(self, request: Request) -> Response:
        """Store the chosen colours, light or dark, in a cookie of this browser."""
        fields = await self.form(request)
        response = RedirectResponse(own_path(fields.get("next", "")), 303)
        self._cookies(request).keep_theme(response, fields.get("theme", ""))
        return response


def _known(core: Core) -> None:
    """Send the core a request that every role may send. Raises Fault for a visitor without a role."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    core.ask(stub.ServerInfo, inspect_pb2.ServerInfoRequest())


def _address(request: Request) -> str:
    """Return the address to which the visitor returns from a form of this page.

    From the answer to a form, the visitor returns to another page, because the answer cannot be requested again by
    its address.
    """
    if request.method == "POST":
        is_what_if = request.url.path.startswith(what_if_pages.PATH)
        return what_if_pages.PATH if is_what_if else VIEWS[0].path
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def own_path(text: str) -> str:
    """Return the path if it is a path of the console itself, else the path of the first view."""
    is_own = text.startswith("/") and not text.startswith("//") and "\\" not in text
    return text if is_own and text.isprintable() and text.isascii() else VIEWS[0].path


async def _healthy(_: Request) -> Response:
    """Answer that the console runs. The answer says nothing about the core, which has a separate health service."""
    return PlainTextResponse("ok\n")


def make_app(source: Source, options: Options) -> ASGIApp:
    """Return the application."""
    console = Console(source, options)

    async def unknown(request: Request, _: Exception) -> Response:
        return console.refused(request, refusals.NO_PAGE)

    async def other_site(request: Request, _: Exception) -> Response:
        return console.refused(request, refusals.OTHER_SITE)

    async def busy(request: Request, _: Exception) -> Response:
        return console.refused(request, refusals.TOO_MANY_TEXTS)

    async def stale(request: Request, found: Exception) -> Response:
        return await console.stale(request, cast("StaleFormError", found).fields)

    async def failed(request: Request, _: Exception) -> Response:
        return console.refused(request, refusals.FAILED)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        console.readers.close()

    app = Starlette(
        routes=[
            *_routes(console),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
        ],
        exception_handlers={
            404: unknown,
            403: other_site,
            500: failed,
            503: busy,
            StaleFormError: stale,
        },
        lifespan=lifespan,
    )

    async def wrong_host(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- of ASGI
        refused = console.pages.refused(refusals.WRONG_HOST)
        await HTMLResponse(refused.html, refused.status)(scope, receive, send)

    return Protected(app, options.hosts, wrong_host)


def _routes(console: Console) -> list[Route]:
    def of(view: View[Any], handler: Callable[..., Any]) -> Any:  # noqa: ANN401
        return partial(handler, view=view)

    pages = [Route(one.path, of(one, console.page)) for one in VIEWS]
    streams = [Route(f"/live{one.path}", of(one, console.live)) for one in VIEWS]
    forms = [
        Route("/log-in", console.log_in, methods=["POST"]),
        Route("/log-out", console.log_out, methods=["POST"]),
        Route("/theme", console.choose_theme, methods=["POST"]),
    ]
    what_if = what_if_pages.WhatIf(console).routes()
    return [*pages, *streams, *what_if, *forms, Route("/healthz", _healthy)]
