"""The protection of the console against other sites in a browser: accepted host names, response headers, and marks.

The mark of a form is a hidden text that shows that the console itself made the form.
"""

import hashlib
import hmac
import ipaddress
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
TRIED_S: Final = 3600
"""Seconds for which a browser's proof of having seen an answer is valid.

After that time, the answer may have changed with the cluster.
"""
DIGITS_MAX: Final = 12
"""Largest number of digits of the instant in a proof."""
OPEN_TO_ALL: Final = "/healthz"
"""The path that a probe may request under any host name. The answer has no data of the core."""


class Hosts:
    """The addresses under which browsers reach the console: `HOST:PORT` as in the header Host, and whole origins."""

    def __init__(self, listen: str, origins: Sequence[str] = ()) -> None:
        """Begin with the address on which the console listens, and with the origins that were given as options."""
        own = [f"http://{one}" for one in _own_names(listen)]
        self.origins = frozenset(map(_as_browsers_write, (*own, *origins)))
        self.hosts = frozenset(urlsplit(one).netloc for one in self.origins)

    def knows(self, host: str) -> bool:
        """Return whether the value of a header Host is an address of the console."""
        return host.lower() in self.hosts

    def is_secure(self, host: str) -> bool:
        """Return whether browsers reach the console under this host name only by HTTPS."""
        name = host.lower()
        return f"https://{name}" in self.origins and f"http://{name}" not in self.origins


def _as_browsers_write(origin: str) -> str:
    """Return an origin in lower case, without a final slash, and without the port if that is the default port of its scheme."""
    text = origin.rstrip("/").lower()
    return text.removesuffix(":443" if text.startswith("https:") else ":80")


def _own_names(listen: str) -> Iterable[str]:
    """Yield the names, with the port, of the address on which the console listens.

    An address that means all addresses of the machine yields no name.
    """
    host, _, port = listen.rpartition(":")
    bare = host.strip("[]")
    try:
        given = ipaddress.ip_address(bare)
    except ValueError:
        yield listen.lower()
        loopback = bare == "localhost"
    else:
        if not given.is_unspecified:
            yield f"{host}:{port}"
        loopback = given.is_loopback or given.is_unspecified
    if loopback:
        yield from (f"{one}:{port}" for one in ("localhost", "127.0.0.1", "[::1]"))


class Protected:
    """An application that answers only requests for its own host names, and adds HEADERS to each answer."""

    def __init__(self, app: ASGIApp, hosts: Hosts, wrong_host: ASGIApp) -> None:
        self._app = app
        self._hosts = hosts
        self._wrong_host = wrong_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request for an own host name, or for OPEN_TO_ALL, to the application.

        Let `wrong_host` answer every other request.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        known = self._hosts.knows(Headers(scope=scope).get("host", ""))
        app = self._app if known or scope["path"] == OPEN_TO_ALL else self._wrong_host
        await app(scope, receive, guarded)


def form_mark(secret: bytes, session: str) -> str:
    """Return the mark of the forms for one browser session. A page of another site cannot know the mark."""
    return _sealed(secret, "form", session)


@dataclass(frozen=True, slots=True)
class Tried:
    """An answer that a browser has seen with a token: the changes that a text would make.

    `base` has the revision and the digest of the changed configuration.
    """

    session: str
    token: str = field(repr=False)
    base: tuple[int, str]
    text: str


class Proof(Enum):
    """The result of checking a proof: the browser has seen the answer, or saw it too long ago, or the proof is invalid."""

    GOOD = 1
    OLD = 2
    NONE = 3


def tried_mark(secret: bytes, one: Tried, now_s: float) -> str:
    """Return a text which proves that a browser saw an answer at the instant ``now_s``."""
    seconds = int(now_s)
    mark = _sealed(secret, "tried", one.session, one.token, *one.base, one.text, seconds)
    return f"{seconds}-{mark}"


def proven(secret: bytes, one: Tried, now_s: float, given: str) -> Proof:
    """Check whether a text proves that a browser has seen an answer, less than TRIED_S seconds before ``now_s``."""
    seconds, _, _ = given.partition("-")
    if not (seconds.isascii() and seconds.isdecimal() and len(seconds) <= DIGITS_MAX):
        return Proof.NONE
    if not same_mark(tried_mark(secret, one, int(seconds)), given):
        return Proof.NONE
    return Proof.GOOD if now_s - int(seconds) <= TRIED_S else Proof.OLD


def _sealed(secret: bytes, *values: str | int) -> str:
    """Return a keyed hash of the values.

    If the same characters are divided differently into values, the hash differs.
    """
    return hmac.new(secret, json.dumps(values).encode(), hashlib.sha256).hexdigest()


def is_own_origin(headers: Headers, origins: Collection[str]) -> bool:
    """Return whether a form comes from a page of the console, according to the browser's headers.

    If the request has no headers about its origin, return True.
    """
    site = headers.get("sec-fetch-site", "same-origin")
    origin = headers.get("origin", "").lower()
    return site in {"same-origin", "none"} and (not origin or origin in origins)


def says_own_origin(headers: Headers, origins: Collection[str]) -> bool:
    """Return whether the browser says that a form comes from a page of the console.

    Pages of other sites cannot forge the headers that say so.
    """
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "").lower()
    return is_own_origin(headers, origins) and (site == "same-origin" or bool(origin))


def same_mark(expected: str, given: str) -> bool:
    """Return whether two texts are equal.

    The time of the comparison does not depend on the place at which the texts differ.
    """
    return hmac.compare_digest(expected.encode(), given.encode())
