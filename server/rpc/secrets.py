"""The files that decide which callers may reach the ports. The files are read at the start, and again when one of the files changes.

Certificate, key and client authority together are one secret. The file of roles is another secret, and the file of tokens is a
third. A secret is replaced completely or not at all. While a new file cannot be used, the content that was read before stays
in force.
"""

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import grpc
import structlog

from server.model.reports import Finding
from server.rpc.access import Access, BadOptionError, Tls, known
from server.rpc.identity import Identities

LOOK_S: Final = 5.0
"""The seconds between two checks of the files."""
_DAY_MS: Final = 24 * 3_600_000
EXPIRY_WARNING_MS: Final = 14 * _DAY_MS
"""The milliseconds before the expiry of the server's certificate at which warnings begin."""

_CORRECT: Final = "Correct the file: it is read again within seconds, and at SIGHUP at once."
_RENEW: Final = "Write a new certificate and key over the old files; no restart is needed."

_log = structlog.get_logger("server")

_Read = TypeVar("_Read")


class Health(NamedTuple):
    """The health of the secrets.

    ``reloads`` counts the calls of `renew` that put a file's content in force. ``failing`` says for each secret with files why
    its newest text is not in force. The reason is "" if the text is in force. ``expires_ms`` is the instant at which the
    server's certificate expires. ``expires_ms`` is None without TLS.
    """

    reloads: int
    failing: dict[str, str]
    expires_ms: int | None


class _Secret(Generic[_Read]):
    """The content of one or more files. ``problem`` says why the newest text of the files is not in force.

    ``problem`` is "" if the text is in force.
    """

    def __init__(self, name: str, read: Callable[[], _Read], *files: Path | None) -> None:
        """Read the files. Raise BadOptionError if a file cannot be used."""
        self.name = name
        self.files = [file for file in files if file is not None]
        self._read = read
        self._stamps = self._now()
        self.value = read()
        self.problem = ""

    @property
    def is_due(self) -> bool:
        """Whether one of the files has changed, or could not be read at the last attempt."""
        return bool(self.problem) or self._now() != self._stamps

    def renew(self) -> bool:
        """Read the files again. If the files cannot be used, keep the content in force and return False."""
        # The stamps are taken before the files are read. A change in between is therefore noticed the next
        # time.
        self._stamps = self._now()
        try:
            self.value, problem = self._read(), ""
        except BadOptionError as error:
            problem = str(error)
        if problem and problem != self.problem:
            _log.error("secret-not-reloaded", secret=self.name, problem=problem)
        self.problem = problem
        return not problem

    def _now(self) -> list[tuple[int, int, int] | None]:
        """Return a stamp for each file, or None for a file that cannot be read. The stamp changes when the file is replaced.

        Symbolic links are followed, so that a link that points to another file is noticed as a change.
        """
        return [_stamp(file) for file in self.files]


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class Secrets:
    """The content in force of the files of ``access``. ``now`` gives Unix milliseconds."""

    def __init__(self, access: Access, now: Callable[[], int]) -> None:
        """Read all files. Raise BadOptionError if a file cannot be used."""
        self._access = access
        self._now = now
        pair = (access.tls_cert, access.tls_key)
        self._tls = _Secret("tls", access.tls, *pair, access.tls_client_ca)
        self._roles = _Secret("roles", access.roles, access.roles_file)
        self._tokens = _Secret("tokens", access.tokens, access.tokens_file)
        self._offered: Tls | None = self._tls.value
        self._reloads = 0
        self._expiry = ""
        self._say_expiry()

    @property
    def identities(self) -> Identities:
        """The identities that the roles and tokens in force define."""
        return known(self._access, self._roles.value, self._tokens.value)

    def credentials(self) -> grpc.ServerCredentials | None:
        """Return TLS for the gRPC port, or None without TLS. Each new connection gets the certificate in force."""
        if self._tls.value is None:
            return None
        needed = self._access.tls_client_ca is not None
        fetch: Any = self._newer  # The type stub lacks the None that gRPC's documentation allows.
        return grpc.dynamic_ssl_server_credentials(self._tls.value.grpc, fetch, needed)

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the TLS configuration in force if it is newer than the configuration that gRPC has. Otherwise return None.

        The library gRPC calls this method in a thread of its own.
        """
        tls = self._tls.value
        if tls is None or tls is self._offered:
            return None
        self._offered = tls
        return tls.grpc

    def metrics_tls(self) -> ssl.SSLContext | None:
        """Return TLS for the metrics endpoint, or None without TLS. Each new connection gets the certificate in force."""
        if self._tls.value is None:
            return None
        context = self._tls.value.metrics

        def choose(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            assert self._tls.value is not None
            connection.context = self._tls.value.metrics

        context.sni_callback = choose
        return context

    def renew(self, *, whole: bool) -> bool:
        """Read again the files that have changed or are not in force, or all files if ``whole``.

        Return whether at least one of the secrets was read and is now in force.
        """
        due = [one for one in self._with_files() if whole or one.is_due]
        renewed = [one.name for one in due if one.renew()]
        if renewed:
            self._reloads += 1
            _log.info("secrets-reloaded", secrets=renewed)
        self._say_expiry()
        return bool(renewed)

    def health(self) -> Health:
        """Return the health of the secrets."""
        failing = {one.name: one.problem for one in self._with_files()}
        tls = self._tls.value
        return Health(self._reloads, failing, None if tls is None else tls.expires_ms)

    def findings(self) -> Iterator[Finding]:
        """Yield the doctor's findings about the files."""
        for one in self._with_files():
            if one.problem:
                message = f"the new file is not in force, the previous one is kept: {one.problem}"
                yield Finding("warning", one.name, "secret-not-reloaded", message, _CORRECT)
        if expiry := self._near_end():
            yield Finding("warning", "certificate", "certificate-expires", expiry, _RENEW)

    def _with_files(self) -> "list[_Secret[Any]]":
        return [one for one in (self._tls, self._roles, self._tokens) if one.files]

    def _near_end(self) -> str:
        """Return the warning that the certificate expires soon, or "" while it does not."""
        tls = self._tls.value
        left_ms = EXPIRY_WARNING_MS if tls is None else tls.expires_ms - self._now()
        if left_ms >= EXPIRY_WARNING_MS:
            return ""
        if left_ms <= 0:
            return f"the server's certificate has expired: {self._access.tls_cert}"
        days = left_ms // _DAY_MS
        return f"the server's certificate expires in {days} d: {self._access.tls_cert}"

    def _say_expiry(self) -> None:
        """Log a warning when the certificate expires soon, and again whenever the number of days left changes."""
        expiry = self._near_end()
        if expiry and expiry != self._expiry:
            _log.warning("certificate-expires", problem=expiry)
        self._expiry = expiry
