"""Who a caller is: the name in a client certificate, or a bearer token, looked up in files (design 1.14).

Both files are YAML. Certificates: `certificates: [{name: shim.example, role: shim}]`, the name being a subject
alternative name or the common name. Tokens: `tokens: [{token: ..., role: viewer, queue: root.a}]`.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from server.model.quota import ROOT
from server.rpc.failures import unauthenticated
from server.rpc.roles import LOCAL_OPERATOR, Caller, Role

TOKEN_CHARACTERS_MIN: Final = 16
_BEARER: Final = "Bearer "
_NAMES: Final = ("x509_subject_alternative_name", "x509_common_name")

Metadata = Iterable[tuple[str, str | bytes]]


class _Entry(BaseModel):
    """A role for somebody."""

    model_config = ConfigDict(extra="forbid", strict=False, frozen=True)

    role: Role
    queue: str = Field(default=ROOT, pattern=r"^root(\.[^.\s]+)*$")


class _Certificate(_Entry):
    name: str = Field(min_length=1)


class _Token(_Entry):
    token: str = Field(min_length=TOKEN_CHARACTERS_MIN)
    name: str = "token"


class _Certificates(BaseModel):
    model_config = ConfigDict(extra="forbid")
    certificates: list[_Certificate]


class _Tokens(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tokens: list[_Token]


@dataclass(frozen=True, slots=True)
class Identities:
    """Everybody who is known. With ``open_to_all`` a caller without certificate and token is an operator."""

    open_to_all: bool = True
    certificates: Mapping[str, Caller] = field(default_factory=dict)
    tokens: Mapping[bytes, Caller] = field(default_factory=dict)
    """By SHA-256 of the token, so that looking one up tells nothing about the others."""

    def caller(self, authentication: Mapping[str, Iterable[bytes]], metadata: Metadata) -> Caller:
        """The caller behind a connection and its metadata; raises CallError UNAUTHENTICATED."""
        header = next((text for key, text in metadata if key == "authorization"), None)
        if header is not None:
            return self._bearer(header if isinstance(header, str) else header.decode("latin-1"))
        names = [name.decode() for key in _NAMES for name in authentication.get(key, ())]
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


def digest(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).digest()


def certificates(text: str) -> dict[str, Caller]:
    """Callers by certificate name; raises ValueError that says where the text is wrong."""
    entries = _read(_Certificates, text).certificates
    return {entry.name: Caller(entry.name, entry.role, entry.queue) for entry in entries}


def tokens(text: str) -> dict[bytes, Caller]:
    """Callers by digest of their token; raises ValueError that says where the text is wrong."""
    entries = _read(_Tokens, text).tokens
    return {digest(entry.token): Caller(entry.name, entry.role, entry.queue) for entry in entries}


_Model = TypeVar("_Model", bound=BaseModel)


def _read(model: type[_Model], text: str) -> _Model:
    """Never repeats the input in an error: it holds secrets."""
    try:
        return model.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"line {mark.line + 1 if mark else 0}: this is no YAML") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{path}: {first['msg']}") from None
