"""The facts of an X.509 certificate, read from its DER form (RFC 5280, 4.1): serial number, end of validity, fingerprint.

The standard library reads these facts only from the verified certificate of a peer, and not from a certificate in a file.
"""

import base64
import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

CACHED: Final = 256
"""The number of certificates whose facts are cached. Each call of a connection reads the facts of its client's certificate."""
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)

_INTEGER: Final = 0x02
_UTC_TIME: Final = 0x17
_LONG_LENGTH: Final = 0x80
_TIMES: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_UTC_TIME_PIVOT: Final = 2050
"""The first year that two digits cannot denote. Two digits denote the years 1950 to 2049 (RFC 5280, 4.1.2.5.1)."""


class BadCertificateError(ValueError):
    """The error of bytes that are not a certificate."""


class Certificate(NamedTuple):
    """The facts of a certificate. ``fingerprint`` is the SHA-256 of its DER form."""

    serial: int
    expires_ms: int
    fingerprint: bytes


@lru_cache(CACHED)
def read_certificate(pem: bytes) -> Certificate:
    """Return the first certificate of a PEM text. Raise BadCertificateError if the text has no certificate."""
    found = _PEM.search(pem)
    if found is None:
        raise BadCertificateError("there is no certificate in it")
    try:
        return _certificate(base64.b64decode(found[1]))
    except (ValueError, KeyError, IndexError, StopIteration) as error:
        raise BadCertificateError("it holds no X.509 certificate") from error


def _certificate(der: bytes) -> Certificate:
    ((_, certificate),) = _elements(der)
    fields = _elements(next(_elements(certificate))[1])
    tag, content = next(fields)
    if tag != _INTEGER:  # the version precedes the serial number, except in version 1
        tag, content = next(fields)
    _algorithm, _issuer, (_, validity) = next(fields), next(fields), next(fields)
    _, end = _elements(validity)
    return Certificate(
        int.from_bytes(content, signed=True), _unix_ms(*end), hashlib.sha256(der).digest()
    )


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and content of each DER element in turn."""
    at = 0
    while at < len(der):
        tag, length, start = der[at], der[at + 1], at + 2
        if length & _LONG_LENGTH:
            start += length & ~_LONG_LENGTH
            length = int.from_bytes(der[at + 2 : start])
        at = start + length
        if at > len(der):
            raise ValueError("an element is longer than what holds it")
        yield tag, der[start:at]


def _unix_ms(tag: int, content: bytes) -> int:
    moment = datetime.strptime(content.decode("ascii"), _TIMES[tag]).replace(tzinfo=UTC)
    if tag == _UTC_TIME and moment.year >= _UTC_TIME_PIVOT:
        moment = moment.replace(year=moment.year - 100)
    return int(moment.timestamp()) * 1000
