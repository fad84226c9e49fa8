"""The place of the history: a file of SQLite, or the URL of a PostgreSQL database."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

FILE: Final = "history.sqlite"
"""The name of the file in the folder of `--state-dir`."""
POSTGRESQL: Final = "postgresql+psycopg"
_SQLITE: Final = "sqlite"
_DRIVER: Final = "psycopg"
INSTALL: Final = "pip install 'evenhand[postgres]'"
_FORMS: Final = f"name a file, or {POSTGRESQL}://USER@HOST/DATABASE"


class HistoryError(Exception):
    """The error of a history that cannot be used, however long one waits. The text of the error says what to do."""


class LockedError(HistoryError):
    """The error of a history that another core writes at the moment."""


@dataclass(frozen=True, slots=True)
class Address:
    """The place of a history: a ``file``, or if that is None, the database with the URL ``text``. A URL may hold a password."""

    text: str
    file: Path | None = None

    def __str__(self) -> str:
        """Return the file, or the URL without its password."""
        if self.file is not None:
            return str(self.file)
        parts = urlsplit(self.text)
        user = f"{parts.username}@" if parts.username else ""
        port = f":{parts.port}" if parts.port else ""
        return urlunsplit((parts.scheme, f"{user}{parts.hostname or ''}{port}", parts.path, "", ""))


def address(text: str) -> Address:
    """Return the place that a FILE or URL names.

    Raise HistoryError for a URL of an unknown kind, or if the client library for the URL is not installed.
    """
    scheme, found, rest = text.partition("://")
    if not found:
        return _file(Path(text))
    if scheme == _SQLITE and len(rest) > 1:
        return _file(Path(rest[1:]))
    if scheme != POSTGRESQL:
        raise HistoryError(f"{scheme}:// is not known; {_FORMS}")
    if find_spec(_DRIVER) is None:
        raise HistoryError(f"the client of PostgreSQL is not installed: {INSTALL}")
    return Address(text)


def _file(path: Path) -> Address:
    absolute = path.absolute()
    return Address(str(absolute), absolute)
