"""Requests to the API server: limited in rate and time, with the errors of `shim_client.cluster`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec
from aiolimiter import AsyncLimiter

from shim_client.cluster import (
    BudgetError,
    ClusterError,
    ConflictError,
    FencedError,
    ForbiddenError,
    GoneError,
    MissingError,
)

REQUEST_SECONDS_MAX = 60.0
"""Longest time, in seconds, for one request with its answer; watches have no such limit."""
MESSAGE_LENGTH_MAX = 500
"""Maximum number of characters of an answer that an error message quotes when the answer is not a Status."""

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"

_WRITES = frozenset({"http11.send_request_headers.started", "http11.send_request_body.started"})
"""The names that the HTTP client gives to the steps of a request in which bytes are sent, with and without a proxy."""

_FINAL = frozenset({400, 405, 409, 413, 415, 422})
"""Status codes of failed requests that would fail again if they were repeated."""
_FORBIDDEN = 403
_GONE = 410
_TOO_MANY = 429
_MISSING = 404


@dataclass(frozen=True, slots=True)
class Rate:
    """The permitted rate of requests: `qps` per second after a first burst of `burst` requests."""

    qps: float = 1000.0
    burst: float = 1000.0


class Api:
    """Requests to one API server; watches do not count in the rate.

    `seconds_left` returns for how many seconds this process surely holds the lease, and so may change objects (design
    7.2). When `seconds_left` has passed, no change is sent, and the client stops waiting for the answers to changes.
    If `seconds_left` is None, the process may change objects without a lease.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        rate: Rate | None = None,
        seconds_left: Callable[[], float] | None = None,
    ) -> None:
        rate = rate or Rate()
        self.client = client
        self._limiter = AsyncLimiter(rate.burst, rate.burst / rate.qps)
        self._seconds_left = seconds_left

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401
        """Return an object or a list by its path."""
        return await self._call(self.client.build_request("GET", path, params=params))

    async def post(self, path: str, body: object) -> Any:  # noqa: ANN401
        """Create an object and return the answer."""
        return await self._send("POST", path, body, JSON)

    async def patch(self, path: str, body: object, form: str = MERGE) -> Any:  # noqa: ANN401
        """Patch an object and return it."""
        return await self._send("PATCH", path, body, form)

    async def delete(self, path: str, options: object) -> None:
        """Delete an object."""
        await self._send("DELETE", path, options, JSON)

    async def close(self) -> None:
        """Close all connections."""
        await self.client.aclose()

    async def _send(self, method: str, path: str, body: object, form: str) -> Any:  # noqa: ANN401
        try:
            content = msgspec.json.encode(body)
        except (UnicodeEncodeError, RecursionError) as bad:
            raise ConflictError(f"what is to be written is no JSON: {bad}") from bad
        headers = {"Content-Type": form}
        extensions = {} if self._seconds_left is None else {"trace": self._fence}
        request = self.client.build_request(
            method, path, content=content, headers=headers, extensions=extensions
        )
        return await self._call(request, fenced=self._seconds_left is not None)

    def _may_change(self) -> float:
        """Return for how many seconds this process may surely change objects.

        Raises FencedError if the process may not change objects any more.
        """
        left = math.inf if self._seconds_left is None else self._seconds_left()
        if left <= 0:
            raise FencedError("this shim does not surely hold the lease")
        return left

    async def _fence(self, step: str, _info: Mapping[str, Any]) -> None:
        """Check the lease immediately before a part of the request is written to the socket.

        Raises FencedError if this process possibly does not hold the lease any more.

        The lease is checked at this point because a request may have waited long for a connection.
        """
        if step in _WRITES:
            self._may_change()

    async def _call(self, request: httpx2.Request, *, fenced: bool = False) -> Any:  # noqa: ANN401
        await self._limiter.acquire()
        seconds = min(REQUEST_SECONDS_MAX, self._may_change()) if fenced else REQUEST_SECONDS_MAX
        try:
            async with asyncio.timeout(seconds):
                response = await self.client.send(request)
        except TimeoutError as error:
            if fenced:
                self._may_change()
            raise ClusterError(f"no answer within {seconds:.0f} s") from error
        except httpx2.HTTPError as error:
            raise unreachable(error) from error
        if not response.is_success:
            raise refusal(response.status_code, response.headers, response.content)
        return decoded(response.content)


def decoded(content: bytes) -> Any:  # noqa: ANN401
    """Return the JSON object of an answer. Raises ClusterError when the answer is not a JSON object."""
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ClusterError(f"the API server's answer is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ClusterError("the API server's answer is no object")
    return value


def unreachable(error: httpx2.HTTPError) -> ClusterError:
    """Return the error for a request without an answer."""
    return ClusterError(f"no answer from the API server: {type(error).__name__} {error}".rstrip())


def refusal(code: int, headers: Mapping[str, str], content: bytes) -> ClusterError:
    """Return the error for an answer that does not report success."""
    status = _status(content)
    said = status.get("message")
    text = said if isinstance(said, str) else content[:MESSAGE_LENGTH_MAX].decode(errors="replace")
    return error_of(code, f"{code} {text}".rstrip(), status, headers.get("Retry-After", ""))


def error_of(
    code: int, message: str, status: Mapping[str, Any], retry_after: str = ""
) -> ClusterError:
    """Return the error for an answer with this HTTP status code, and with a Status (a Kubernetes object) as its content."""
    if code == _MISSING or _has_cause(status, "NamespaceTerminating"):
        return MissingError(message)
    if code == _GONE:
        return GoneError(message)
    if code == _FORBIDDEN:
        return ForbiddenError(message, _seconds(retry_after) or _asked(status))
    if code == _TOO_MANY and _has_cause(status, "DisruptionBudget"):
        return BudgetError(message)
    if code in _FINAL:
        return ConflictError(message)
    return ClusterError(message, _seconds(retry_after) or _asked(status))


def _status(content: bytes) -> Mapping[str, Any]:
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _details(status: Mapping[str, Any]) -> Mapping[str, Any]:
    details = status.get("details")
    return details if isinstance(details, dict) else {}


def _asked(status: Mapping[str, Any]) -> float:
    seconds = _details(status).get("retryAfterSeconds")
    return float(seconds) if isinstance(seconds, int) else 0.0


def _has_cause(status: Mapping[str, Any], reason: str) -> bool:
    """Return whether a refusal names this reason as one of its causes."""
    causes = _details(status).get("causes")
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == reason for cause in causes
    )


def _seconds(header: str) -> float:
    return float(header) if header.isascii() and header.isdigit() and len(header) < 10 else 0.0  # noqa: PLR2004
