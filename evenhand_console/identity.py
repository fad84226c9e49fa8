"""The token of a visitor: from a cookie of the log-in, or from a proxy's header if an option names the header."""

import base64
import binascii
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from evenhand_cli.connect import is_token
from evenhand_console.protection import Hosts

TOKEN_MAX: Final = 4096
"""Longest token, in characters."""
SESSION: Final = "evenhand-session"
"""The name of the cookie by which the console recognises its own forms. The value of the cookie is random."""
THEME: Final = "evenhand-theme"
THEMES: Final = ("auto", "light", "dark")
_TOKEN: Final = "evenhand-token"  # noqa: S105 -- the name of a cookie
_YEAR_S: Final = 365 * 24 * 3600
_SESSION_BYTES: Final = 32
_SESSION: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Cookies:
    """The cookies of the console.

    Scripts cannot read these cookies, and forms of other sites do not send them. With HTTPS, browsers send these
    cookies over HTTPS only.
    """

    is_secure: bool
    port: str = ""
    """The port in the address that the browser asked for.

    Browsers send a cookie to all ports of a host. For this reason the names of cookies contain the port: two consoles
    on one host have different cookies.
    """

    def named(self, name: str) -> str:
        """Return the name of a cookie.

        With HTTPS the name has a prefix. Browsers allow no other host to set a cookie with this prefix for this host.
        """
        whole = f"{name}-{self.port}" if self.port else name
        return f"__Host-{whole}" if self.is_secure else whole

    def read(self, cookies: Mapping[str, str], name: str) -> str:
        """Return the value of a cookie, or "" if there is none."""
        return cookies.get(self.named(name), "")

    def session(self, cookies: Mapping[str, str]) -> str:
        """Return the session of a browser, or "" if there is none, or if the value does not have the form of a session."""
        session = self.read(cookies, SESSION)
        return session if _SESSION.fullmatch(session) else ""

    def new_session(self, response: Response) -> None:
        """Begin a new session, so that forms with marks of the former session are refused."""
        self.write(response, SESSION, new_session())

    def write(
        self, response: Response, name: str, value: str, max_age_s: int | None = None
    ) -> None:
        """Set a cookie. A cookie without an age ends when the browser ends."""
        response.set_cookie(
            self.named(name),
            value,
            max_age=max_age_s,
            secure=self.is_secure,
            httponly=True,
            samesite="lax",
        )

    def keep_token(self, response: Response, token: str) -> None:
        """Store the token of a log-in in a cookie until the browser ends."""
        self.write(response, _TOKEN, base64.urlsafe_b64encode(token.encode()).decode())

    def forget_token(self, response: Response) -> None:
        """Delete the cookie with the token."""
        self.write(response, _TOKEN, "", 0)

    def keep_theme(self, response: Response, theme: str) -> None:
        """Store the choice of light or dark colours in a cookie for a year."""
        self.write(response, THEME, theme if theme in THEMES else THEMES[0], _YEAR_S)

    def theme(self, request: Request) -> str:
        """Return the theme that the visitor chose."""
        theme = self.read(request.cookies, THEME)
        return theme if theme in THEMES else THEMES[0]

    def kept_token(self, request: Request) -> str:
        """Return the token of the log-in, or "" if there is none."""
        packed = self.read(request.cookies, _TOKEN)
        try:
            return checked_token(base64.b64decode(packed, altchars=b"-_", validate=True).decode())
        except (binascii.Error, UnicodeDecodeError):
            return ""


def new_session() -> str:
    """Return a random value for a session, which cannot be guessed."""
    return secrets.token_urlsafe(_SESSION_BYTES)


def cookies_of(request: Request, hosts: Hosts) -> Cookies:
    """Return the cookies for the host name under which the browser sent the request."""
    host = request.headers.get("host", "")
    port = host.rpartition(":")[2] if ":" in host else ""
    return Cookies(hosts.is_secure(host), port if port.isdecimal() else "")


def checked_token(text: str) -> str:
    """Return the token in a text, or "" if the text cannot be a token."""
    token = text.strip()
    return token if len(token) <= TOKEN_MAX and is_token(token) else ""


def proxy_token(request: Request, header: str) -> str:
    """Return the token in the header that the proxy sets, or "" if the request lacks the header or no option names a header."""
    given = request.headers.get(header, "") if header else ""
    scheme, _, rest = given.partition(" ")
    return checked_token(rest if scheme.lower() == "bearer" else given)
