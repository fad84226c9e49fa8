"""The form of an input log on an engine: the messages in their order, and the checkpoints beside them (design 7.4).

A log holds the slices of the cores that led, one after the other. Each message names its *term*: the time during which one
process led. A term begins with a separate message. A slice that is too long for one message is written in several messages.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from server.replication.feed import Slice

NAME: Final = "evenhand"
"""The name of a log if its address has no name."""
PORT: Final = 4222
SCHEMES: Final = ("nats", "tls")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FORM: Final = "write nats://HOST:PORT or nats://HOST:PORT/NAME"

_TERM: Final = "Evenhand-Term"
_BEGINS: Final = "Evenhand-Begins"
_POSITION: Final = "Evenhand-Position"
_DECIDED: Final = "Evenhand-Decided"
_DIGEST: Final = "Evenhand-Digest"
_PART: Final = "Evenhand-Part"
_HEADER: Final = "Evenhand-Header"
_LEADER: Final = "Evenhand-Leader"
_CONTINUES: Final = "continues"
_GAP: Final = "gap"
_NO_DIGEST: Final = "-"
"""The digest of a slice without decisions, because the engine drops empty headers."""


class BadAddressError(Exception):
    """The error of a text that is no address of a log. The message says why."""


class Address(NamedTuple):
    """The place of a log: the servers of the engine, and the name of the log there."""

    scheme: str
    servers: tuple[str, ...]
    """The servers as HOST:PORT."""
    name: str

    def __str__(self) -> str:
        """Return the address as the user writes it."""
        return f"{self.scheme}://{','.join(self.servers)}/{self.name}"


def address(text: str) -> Address:
    """Return the address that a text names. Raise BadAddressError if the text is no address."""
    scheme, found, rest = text.partition("://")
    if not found or scheme not in SCHEMES:
        raise BadAddressError(f"{text!r} is no address of a log; {_FORM}")
    places, _, name = rest.partition("/")
    if "@" in places:
        raise BadAddressError("a password does not belong into an address; use --log-credentials")
    name = name or NAME
    if not _NAME.fullmatch(name):
        raise BadAddressError(
            f"{name!r} is no name of a log: letters, digits, - and _, at most 64 of them"
        )
    return Address(scheme, tuple(_server(one) for one in places.split(",")), name)


def _server(text: str) -> str:
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError as error:
        raise BadAddressError(f"{text!r} is no HOST:PORT; {_FORM}") from error
    if not parts.hostname or parts.path or parts.query:
        raise BadAddressError(f"{text!r} is no HOST:PORT; {_FORM}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{PORT if port is None else port}"


class Access(NamedTuple):
    """The address of a log, the text of the credentials file, and the text of the certificate authority's file. A text may be ""."""

    address: Address
    credentials: str = ""
    authority: str = ""


class Message(NamedTuple):
    """A message of a log as the engine has it: its number, its headers and its content."""

    sequence: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def term(self) -> str:
        """The term of the process that wrote the message; it is "" if another program wrote it."""
        return self.headers.get(_TERM, "")


class Begun(NamedTuple):
    """The beginning of a term. ``leader`` is the name of the core that leads, as users see it.

    If the term ``continues`` the log, the leader had received everything before this message, and nothing else. Otherwise its
    state is in a checkpoint of the same term.
    """

    term: str
    leader: str
    position: int
    continues: bool


class Mark(NamedTuple):
    """The facts about a checkpoint: its term, and the number of the last message whose input it certainly includes.

    The checkpoint may include the input of later messages, too. ``made_ms`` is the time at which the checkpoint was made.
    """

    term: str
    after: int
    leader: str = ""
    made_ms: int = 0

    def text(self) -> str:
        """Return these facts as text."""
        return json.dumps(self._asdict(), separators=(",", ":"))


def term_of(process: str, number: int) -> str:
    """Return the name of a term of a process."""
    return f"{process}.{number}"


def process_of(term: str) -> str:
    """Return the name of the process that leads in a term."""
    return term.partition(".")[0]


def mark_of(text: str) -> Mark | None:
    """Return the facts about a checkpoint that a text holds, or None if the text holds no such facts."""
    try:
        found = json.loads(text)
        return Mark(
            str(found["term"]), int(found["after"]), str(found["leader"]), int(found["made_ms"])
        )
    except (KeyError, TypeError, ValueError):
        return None


def beginning(begun: Begun) -> dict[str, str]:
    """Return the headers of the message with which a term begins. The message has no content."""
    return {
        _TERM: begun.term,
        _BEGINS: _CONTINUES if begun.continues else _GAP,
        _LEADER: begun.leader,
        _POSITION: str(begun.position),
    }


def messages(one: Slice, term: str, most: int) -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield the headers and the content of the messages of a slice, each with at most ``most`` bytes of content."""
    parts = max(1, -(-len(one.input) // most))
    headers = {
        _TERM: term,
        _POSITION: str(one.position),
        _DECIDED: str(one.decided),
        _DIGEST: one.digest.hex() or _NO_DIGEST,
        _HEADER: str(int(one.begins)),
    }
    for number in range(parts):
        content = one.input[number * most : (number + 1) * most]
        yield {**headers, _PART: f"{number + 1}/{parts}"}, content


class Assembly:
    """The reader of the messages of a log, in their order. The reader joins the parts of a slice."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def take(self, message: Message) -> Begun | Slice | None:
        """Return the beginning of a term, or the slice that a message completes. Return None for any other message.

        Parts that are not followed by the rest of their slice are dropped, because their writer has ended or was refused.
        """
        headers = message.headers
        try:
            position = int(headers[_POSITION])
            if _BEGINS in headers:
                self._parts.clear()
                continues = headers[_BEGINS] == _CONTINUES
                return Begun(headers[_TERM], headers.get(_LEADER, ""), position, continues)
            number, _, parts = headers[_PART].partition("/")
            if not self._add(int(number), int(parts), message.content):
                return None
            content = b"".join(self._parts)
            self._parts.clear()
            digest = bytes.fromhex(headers[_DIGEST].removeprefix(_NO_DIGEST))
            return Slice(position, int(headers[_DECIDED]), digest, content, headers[_HEADER] == "1")
        except (KeyError, ValueError):
            return None

    def _add(self, number: int, parts: int, content: bytes) -> bool:
        """Add a part, and return whether the slice is complete."""
        if number == 1:
            self._parts.clear()
        if number != len(self._parts) + 1:
            self._parts.clear()
            return False
        self._parts.append(content)
        return number == parts
