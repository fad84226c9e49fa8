"""The certificates and the token of a shim, which are read again when their files have changed."""

from pathlib import Path

import grpc
import structlog

from evenhand_cli.connect import channel_credentials, read_token
from evenhand_cli.faults import Fault
from shim_client.core_client.address import Secrets

_log = structlog.get_logger("evenhand.shim")

_Stamp = tuple[int, int, int] | None


class RenewedSecrets:
    """The content of the files. A call returns the newest content that can be used; the same objects if no file has changed."""

    def __init__(
        self, ca: Path | None, cert: Path | None, key: Path | None, token_file: Path | None
    ) -> None:
        """Read the files. Raise Fault if one of them cannot be used."""
        self._tls = (ca, cert, key)
        self._token_file = token_file
        self._stamps = self._now()
        self._value = self._read()

    def __call__(self) -> Secrets:
        """Return the credentials and the token. If a changed file cannot be used, keep the content that was read before."""
        stamps = self._now()
        if stamps != self._stamps:
            try:
                self._value = self._read()
            except Fault as fault:
                _log.warning("secrets were not read again", why=str(fault))
            else:
                self._stamps = stamps
                _log.info("secrets were read again")
        return self._value

    def _read(self) -> tuple[grpc.ChannelCredentials | None, str]:
        token = read_token(self._token_file) if self._token_file else ""
        return channel_credentials(*self._tls), token

    def _now(self) -> list[_Stamp]:
        return [_stamp(file) for file in (*self._tls, self._token_file) if file is not None]


def _stamp(file: Path) -> _Stamp:
    """Return numbers that change with the content of a file, None if there is no such file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
