"""Access to the port (design 1.14): addresses, TLS, and the files of roles and tokens."""

import ipaddress
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import grpc

from server.record.file_modes import refused_file
from server.rpc.identity import Identities, Roles, roles, tokens
from server.rpc.roles import Caller
from server.rpc.x509 import BadCertificateError, read_certificate

_PORT_MAX: Final = 65_535
_Read = TypeVar("_Read")


class BadOptionError(ValueError):
    """The error of a wrong option, or of a wrong file that an option names. `str()` names the option or file and says what is wrong."""


class Tls(NamedTuple):
    """The TLS settings of gRPC and of the metrics endpoint, and the instant at which the server's certificate expires."""

    grpc: grpc.ServerCertificateConfiguration
    metrics: ssl.SSLContext
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Access:
    """The files of TLS, roles and tokens. All files are optional. `checked` refuses combinations that contradict each other."""

    insecure: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    tokens_file: Path | None = None
    roles_file: Path | None = None

    @property
    def private_files(self) -> list[Path]:
        """The files that hold secrets: the private key and the tokens."""
        return [one for one in (self.tls_key, self.tokens_file) if one is not None]

    @property
    def public_files(self) -> list[Path]:
        """The files that decide which callers may reach the port, and that hold no secret."""
        files = (self.tls_cert, self.tls_client_ca, self.roles_file)
        return [one for one in files if one is not None]

    def checked(self, listen: str, metrics: str | None) -> None:
        """Raise BadOptionError for options that cannot be used.

        There are four cases: options that contradict each other, TLS without a way for callers to identify themselves, a malformed
        address, and a port that could be reached from outside without TLS and without ``--insecure``.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            raise BadOptionError("--tls-cert and --tls-key must be given together")
        if self.insecure and self.tls_cert is not None:
            raise BadOptionError("--insecure has no effect with --tls-cert: leave one of them out")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise BadOptionError("--tls-client-ca needs --tls-cert and --tls-key")
        if self.roles_file is not None and self.tls_client_ca is None:
            raise BadOptionError(
                "--roles needs --tls-client-ca: names come from client certificates"
            )
        if self.tls_cert is not None and self.tls_client_ca is None and self.tokens_file is None:
            raise BadOptionError(
                "with TLS no caller could identify itself: add --tls-client-ca or --tokens"
            )
        for option, text in (("--listen", listen), ("--metrics", metrics)):
            if text is not None:
                self._check_exposure(option, text)

    def _check_exposure(self, option: str, text: str) -> None:
        host, _ = address(option, text)
        if not (is_loopback(host) or self.insecure or self.tls_cert is not None):
            raise BadOptionError(
                f"{option} {text} can be reached from outside: give --tls-cert and --tls-key, or --insecure"
            )

    @property
    def open_to_all(self) -> bool:
        """Whether a caller without a token counts as an operator.

        This is so if the port has no TLS. A port without TLS is allowed on a loopback address, and with --insecure, which says that
        the network is trusted. If both --insecure and a tokens file are given, callers need a token.
        """
        return self.tls_cert is None and not (self.insecure and self.tokens_file)

    def roles(self) -> Roles:
        """Return the roles of the roles file, or no roles if no file is given.

        Raise BadOptionError if the file cannot be used.
        """
        return Roles({}) if self.roles_file is None else _told(self.roles_file, roles)

    def tokens(self) -> Mapping[bytes, Caller]:
        """Return the callers of the tokens file by the digest of their token, or no callers if no file is given.

        Raise BadOptionError if the file cannot be used.
        """
        return {} if self.tokens_file is None else _told(self.tokens_file, tokens)

    def tls(self) -> Tls | None:
        """Return the TLS settings of the ports, or None if no certificate is given. Raise BadOptionError if the files cannot be used."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        certificate = read_private(self.tls_cert)
        authority = read_private(self.tls_client_ca) if self.tls_client_ca else None
        context = self._context()
        try:
            expires_ms = read_certificate(certificate).expires_ms
        except BadCertificateError as error:
            raise BadOptionError(f"{self.tls_cert}: {error}") from error
        pair = (read_private(self.tls_key), certificate)
        return Tls(
            grpc.ssl_server_certificate_configuration([pair], authority), context, expires_ms
        )

    def _context(self) -> ssl.SSLContext:
        """Return the TLS context of the metrics endpoint. Raise BadOptionError if certificate, key or client authority cannot be used."""
        assert self.tls_cert is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A resumed TLS session would keep the client authority and the server certificate that were in force when the
        # session began.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        try:
            # With an empty password OpenSSL refuses an encrypted key. Without this argument it would ask for the password at
            # the terminal.
            context.load_cert_chain(self.tls_cert, self.tls_key, password="")
            if self.tls_client_ca is not None:
                context.load_verify_locations(self.tls_client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (ssl.SSLError, OSError) as error:
            raise BadOptionError(
                f"{self.tls_cert}, {self.tls_key}: no certificate and key: {error}"
            ) from error
        return context


def known(access: Access, roles: Roles, tokens: Mapping[bytes, Caller]) -> Identities:
    """Return the identities that these roles and tokens define under the access options."""
    return Identities(access.open_to_all, roles.callers, tokens, roles.revoked)


def _told(file: Path, read: Callable[[str], _Read]) -> _Read:
    try:
        return read(read_private(file).decode())
    except ValueError as error:
        if isinstance(error, BadOptionError):
            raise
        raise BadOptionError(f"{file}: {error}") from error


def address(option: str, text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT or [ADDRESS]:PORT. Raise BadOptionError for any other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _PORT_MAX or not host:
        raise BadOptionError(
            f"{option} {text!r} is no address: write HOST:PORT, such as 127.0.0.1:50051"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host.

    Return False for any name other than localhost, because such a name may have any address.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_private(file: Path) -> bytes:
    """Return the bytes of a file that controls access to the ports.

    Raise BadOptionError if the file cannot be read, or if other users may change it.
    """
    try:
        found = file.stat()
        text = file.read_bytes()
    except OSError as error:
        raise BadOptionError(f"{file}: {error.strerror or error}") from error
    if why := refused_file(file, found):
        raise BadOptionError(why)
    return text
