"""The identity of a caller: the name in a client certificate, or a bearer token (design 1.14).

Two YAML files assign roles to names and to tokens. The file of certificates has `certificates: [{name: shim.example, role:
shim}]`. A name is a DNS name or a whole URI among the subject alternative names. If a certificate has no alternative names, its
name is the common name (RFC 6125). DNS names are compared without regard to case, and URIs exactly. A wildcard in a certificate
matches only the same text in the file. The same file has `revoked: [{fingerprint: ...}, {serial: ...}]`. Revoked certificates are
refused although their authority is trusted. The file of tokens has `tokens: [{token: ..., role: viewer, queue: root.a}]`.
"""

import hashlib
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from server.model.quota import ROOT
from server.rpc.errors import CallError, unauthenticated
from server.rpc.limits import NAME_CHARACTERS_MAX
from server.rpc.roles import LOCAL_OPERATOR, SCRAPERS, Caller, Role
from server.rpc.x509 import BadCertificateError, read_certificate

TOKEN_CHARACTERS_MIN: Final = 16
DIGEST_SHOWN: Final = 8
_BEARER: Final = "Bearer "

Metadata = Iterable[tuple[str, str | bytes]]


class _Entry(BaseModel):
    """The common part of the entries of both files: a role, and the queue, manager and partitions to which the role is restricted."""

    model_config = ConfigDict(extra="forbid", strict=False, frozen=True)

    role: Role
    queue: str = Field(default=ROOT, pattern=r"^root(\.[^.\s]+)*$")
    manager: str = Field(default="", max_length=NAME_CHARACTERS_MAX)
    partitions: frozenset[str] = frozenset()

    @model_validator(mode="after")
    def _bound_as_its_role(self) -> Self:
        if self.queue != ROOT and self.role is not Role.VIEWER:
            raise ValueError(f"queue is for the role viewer, not for {self.role}")
        if (self.manager or self.partitions) and self.role is not Role.SHIM:
            raise ValueError(f"manager and partitions are for the role shim, not for {self.role}")
        return self

    def caller(self, name: str) -> Caller:
        """Return the caller that this entry describes."""
        partitions = frozenset(one.lower() for one in self.partitions)
        return Caller(name, self.role, self.queue, self.manager, partitions)


class _Certificate(_Entry):
    name: str = Field(min_length=1)


class _Token(_Entry):
    token: str = Field(min_length=TOKEN_CHARACTERS_MIN)
    name: str = ""

    def known_as(self) -> str:
        """Return the caller's name, by default the beginning of its token's digest."""
        return self.name or f"token {digest(self.token).hex()[:DIGEST_SHOWN]}"


class _Revoked(BaseModel):
    """A client certificate that is refused, named by its serial number or its fingerprint, as `openssl x509` prints them."""

    model_config = ConfigDict(extra="forbid")

    fingerprint: str = Field(default="", pattern=r"^([0-9a-fA-F]{2}:?){31}[0-9a-fA-F]{2}$")
    serial: str = Field(default="", pattern=r"^[0-9a-fA-F]+(:[0-9a-fA-F]+)*$")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.fingerprint) == bool(self.serial):
            raise ValueError("name either a fingerprint (SHA-256) or a serial")
        return self


class _Certificates(BaseModel):
    model_config = ConfigDict(extra="forbid")
    certificates: list[_Certificate]
    revoked: list[_Revoked] = []


class _Tokens(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tokens: list[_Token]


class Revoked(NamedTuple):
    """The client certificates that are refused, by serial number and by the SHA-256 of their DER form."""

    serials: frozenset[int] = frozenset()
    fingerprints: frozenset[bytes] = frozenset()

    def has(self, authentication: Mapping[str, Iterable[bytes]]) -> bool:
        """Return whether the client certificate of a connection is revoked."""
        if not any(self):
            return False
        found = map(read_certificate, authentication.get(_CERTIFICATE, ()))
        return any(
            one.serial in self.serials or one.fingerprint in self.fingerprints for one in found
        )


def has_expired(authentication: Mapping[str, Iterable[bytes]], now: int) -> bool:
    """Return whether the client certificate of a connection has expired.

    TLS checks the expiry only when the connection is opened.
    """
    certificates = map(read_certificate, authentication.get(_CERTIFICATE, ()))
    return any(one.expires_ms < now for one in certificates)


NONE_REVOKED: Final = Revoked()


class Roles(NamedTuple):
    """The content of a roles file: callers by certificate name, and the certificates that are refused."""

    callers: Mapping[str, Caller]
    revoked: Revoked = NONE_REVOKED


@dataclass(frozen=True, slots=True)
class Identities:
    """The callers that the files of roles and tokens define.

    With ``open_to_all``, a caller is an operator if it sends no token and no certificate with a role.
    """

    open_to_all: bool = True
    certificates: Mapping[str, Caller] = field(default_factory=dict)
    tokens: Mapping[bytes, Caller] = field(default_factory=dict)
    """The callers by the SHA-256 of their tokens.

    The tokens themselves are not the keys, because the time of a look-up could then reveal parts of a token.
    """
    revoked: Revoked = NONE_REVOKED

    def caller(
        self, authentication: Mapping[str, Iterable[bytes]], metadata: Metadata, now: int
    ) -> Caller:
        """Return the caller behind a connection and its metadata.

        Raise CallError UNAUTHENTICATED if the caller is unknown.

        A bearer token takes precedence over the names in the certificate. An unknown token is refused. A certificate is
        refused, even with a valid token, if it is revoked, cannot be read, or has expired since its connection was opened.
        """
        try:
            is_over = has_expired(authentication, now)
        except BadCertificateError as error:
            raise unauthenticated(f"the client certificate cannot be read: {error}") from error
        if is_over:
            raise unauthenticated(
                "the client certificate has expired: renew it and connect again with the new one"
            )
        if self.revoked.has(authentication):
            raise unauthenticated(
                "the client certificate is revoked; ask an operator for another one"
            )
        header = next((text for key, text in metadata if key == "authorization"), None)
        if header is not None:
            return self._bearer(header if isinstance(header, str) else header.decode("latin-1"))
        names = _names(authentication)
        for name in names:
            if name in self.certificates:
                return self.certificates[name]
        if self.open_to_all:
            return LOCAL_OPERATOR
        known = (
            f"no role is given to {', '.join(names)}"
            if names
            else "send a client certificate or a bearer token"
        )
        raise unauthenticated(known)

    def _bearer(self, header: str) -> Caller:
        token = header.removeprefix(_BEARER)
        caller = self.tokens.get(digest(token))
        if caller is None or token == header:
            raise unauthenticated("the bearer token is unknown")
        return caller


def _names(authentication: Mapping[str, Iterable[bytes]]) -> list[str]:
    """Return the names that a client certificate gives to its owner, from gRPC's authentication context."""
    found = {
        key: [name.decode(errors="backslashreplace") for name in names]
        for key, names in authentication.items()
    }
    if found.get("x509_subject_alternative_name"):
        uris = [name for name in found.get("peer_uri", ()) if _URI in name]
        hosts = [name for name in found.get("peer_dns", ()) if _URI not in name]
        return [*map(_comparable, hosts), *uris]
    return [_comparable(name) for name in found.get("x509_common_name", ())]


def _comparable(name: str) -> str:
    """Return the form in which names are compared. A host is in lower case (RFC 6125, 6.4.1), a URI is unchanged."""
    return name if _URI in name else name.lower()


def authentication(
    certificate: Mapping[str, Any] | None, der: bytes | None = None
) -> dict[str, list[bytes]]:
    """Return gRPC's authentication context for a client certificate as `ssl` reads it."""
    found: dict[str, list[bytes]] = {}
    if der is not None:
        found[_CERTIFICATE] = [ssl.DER_cert_to_PEM_cert(der).encode()]
    for kind, name in (certificate or {}).get("subjectAltName", ()):
        found.setdefault("x509_subject_alternative_name", []).append(name.encode())
        if kind in _KINDS:
            found.setdefault(_KINDS[kind], []).append(name.encode())
    for part in (certificate or {}).get("subject", ()):
        for kind, name in part:
            if kind == "commonName":
                found.setdefault("x509_common_name", []).append(name.encode())
    return found


_URI: Final = "://"
_KINDS: Final = {"DNS": "peer_dns", "URI": "peer_uri"}
_CERTIFICATE: Final = "x509_pem_cert"


def refused_metrics(
    identities: Identities, peer: ssl.SSLObject | None, authorization: str, now: int
) -> tuple[int, str] | None:
    """Return the HTTP status and the reason for refusing metrics to a caller.

    Return None if the caller may read the metrics.
    """
    metadata = [("authorization", authorization)] if authorization else []
    known = authentication(peer.getpeercert(), peer.getpeercert(binary_form=True)) if peer else {}
    try:
        caller = identities.caller(known, metadata, now)
    except CallError as error:
        return 401, error.message
    if caller.role not in SCRAPERS:
        return (
            403,
            f"your role ({caller.title}) may not read metrics; the roles metrics and operator may",
        )
    return None


def digest(token: str) -> bytes:
    """Return the digest under which a token is stored."""
    return hashlib.sha256(token.encode()).digest()


def roles(text: str) -> Roles:
    """Return the callers by certificate name, and the revoked certificates. Raise ValueError if the text is wrong.

    The error names the wrong place in the text.
    """
    found = _read(_Certificates, text)
    revoked = Revoked(
        frozenset(_number(one.serial) for one in found.revoked if one.serial),
        frozenset(
            _number(one.fingerprint).to_bytes(32) for one in found.revoked if one.fingerprint
        ),
    )
    names = [_comparable(entry.name) for entry in found.certificates]
    if (second := _repeated(names)) is not None:
        raise ValueError(
            f"certificates.{second}: {names[second]} has an entry above; keep one of them"
        )
    callers = {
        name: entry.caller(entry.name)
        for name, entry in zip(names, found.certificates, strict=True)
    }
    return Roles(callers, revoked)


def _number(text: str) -> int:
    """Return the number that hexadecimal digits, with or without colons, denote."""
    return int(text.replace(":", ""), 16)


def tokens(text: str) -> dict[bytes, Caller]:
    """Return the callers that the text defines, by the digest of their tokens. Raise ValueError if the text is wrong.

    The error names the wrong place in the text.
    """
    entries = _read(_Tokens, text).tokens
    if (second := _repeated([entry.token for entry in entries])) is not None:
        raise ValueError(f"tokens.{second}: this token has an entry above; keep one of them")
    return {digest(entry.token): entry.caller(entry.known_as()) for entry in entries}


def _repeated(names: Sequence[str]) -> int | None:
    """Return the index of the first name that equals an earlier name. Return None if no name is repeated."""
    seen: set[str] = set()
    for at, name in enumerate(names):
        if name in seen:
            return at
        seen.add(name)
    return None


_Model = TypeVar("_Model", bound=BaseModel)


def _read(model: type[_Model], text: str) -> _Model:
    """Return the text parsed as the model.

    Raise ValueError if the text does not fit the model. The error does not quote the text, because the text holds secrets.
    """
    try:
        return model.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"line {mark.line + 1 if mark else 0}: this is no YAML") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{path}: {first['msg']}") from None
