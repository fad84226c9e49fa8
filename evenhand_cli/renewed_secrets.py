"""The certificates and the token of a shim, which are read again when their files have changed."""

import ssl
from pathlib import Path
from typing import Final

import grpc
import structlog

from evenhand_cli.connect import channel_credentials, read_token
from evenhand_cli.faults import Fault
from shim_client.core_client.address import Secrets

_log = structlog.get_logger("evenhand.shim")

READS_MAX: Final = 3
"""The number of attempts to read files that change while they are read."""

_Stamp = tuple[int, int, int] | None


class RenewedSecrets:
    """The content of the files with certificates and token.

    A call of this object returns the newest usable content of the files. If no file has changed, a call returns the
    same objects as before.
    """

    def __init__(
        self, ca: Path | None, cert: Path | None, key: Path | None, token_file: Path | None
    ) -> None:
        """Read the files. Raise Fault if a file cannot be used."""
        self._tls = (ca, cert, key)
        self._token_file = token_file
        self._problem = ""
        self._stamps = self._now()
        self._value = self._read()

    def __call__(self) -> Secrets:
        """Return the credentials and the token. If a changed file cannot be used, keep the content that was read before."""
        for _ in range(READS_MAX):
            stamps = self._now()
            if stamps == self._stamps or not self._renew(stamps):
                break
        return self._value

    def _renew(self, stamps: list[_Stamp]) -> bool:
        """Read changed files.

        Return True if a file changed while the files were read, so that their contents possibly do not belong together.
        """
        try:
            value = self._read()
            _check(*self._tls)
        except Fault as fault:
            self._report(str(fault))
            return False
        if stamps != self._now():
            return True
        self._value, self._stamps, self._problem = value, stamps, ""
        _log.info("secrets were read again")
        return False

    def _report(self, problem: str) -> None:
        """Log why files cannot be used, once for each reason.

        The files are read again before each session until they can be used.
        """
        if problem != self._problem:
            _log.warning("secrets were not read again", why=problem)
        self._problem = problem

    def _read(self) -> tuple[grpc.ChannelCredentials | None, str]:
        token = read_token(self._token_file) if self._token_file else ""
        return channel_credentials(*self._tls), token

    def _now(self) -> list[_Stamp]:
        return [_stamp(file) for file in (*self._tls, self._token_file) if file is not None]


def _check(ca: Path | None, cert: Path | None, key: Path | None) -> None:
    """Raise Fault for certificates or a key that cannot be used, or for a key of another certificate.

    The check is needed because gRPC accepts unusable files, and then every connection fails.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if ca is not None:
            context.load_verify_locations(ca)
        if cert is not None:
            context.load_cert_chain(cert, key, password="")
    except OSError as error:
        named = ", ".join(str(file) for file in (ca, cert, key) if file is not None)
        raise Fault(f"cannot use {named}: {error.strerror or error}") from error


def _stamp(file: Path) -> _Stamp:
    """Return numbers that change with the content of a file, None if there is no such file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
