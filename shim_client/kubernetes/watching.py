"""A watch, which reads the API server's stream line by line as `WatchEvent` objects.

The API server ends a watch after `WATCH_SECONDS`, and sends a bookmark about every minute. A stream that is silent
for more than `SILENCE_SECONDS_MAX` counts as broken.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2

from shim_client.cluster import Change, ClusterError, WatchEvent
from shim_client.kubernetes.access import CONNECT_SECONDS_MAX
from shim_client.kubernetes.api import Api, decoded, error_of, refusal, unreachable
from shim_client.kubernetes.kinds import trimmed, version_of

WATCH_SECONDS = 300
"""Seconds after which the API server ends a watch."""
SILENCE_SECONDS_MAX = 150.0
"""Longest time, in seconds, without data in a watch; bookmarks come more often."""

_TIMEOUT = httpx2.Timeout(SILENCE_SECONDS_MAX, connect=CONNECT_SECONDS_MAX, pool=None)


async def watched(api: Api, kind: str, path: str, version: int) -> AsyncIterator[WatchEvent]:
    """Yield every change after a version. Raises GoneError or ClusterError."""
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": str(version),
        "timeoutSeconds": str(WATCH_SECONDS),
    }
    request = api.client.build_request("GET", path, params=params, timeout=_TIMEOUT)
    try:
        response = await api.client.send(request, stream=True)
        try:
            if not response.is_success:
                content = await response.aread()
                raise refusal(response.status_code, response.headers, content)
            async for line in response.aiter_lines():
                if line:
                    yield _event(kind, line)
        finally:
            await response.aclose()
    except httpx2.HTTPError as error:
        raise unreachable(error) from error


def _event(kind: str, line: str) -> WatchEvent:
    said = decoded(line.encode())
    item = said.get("object")
    if not isinstance(item, dict):
        raise ClusterError(f"a watch event without an object: {line[:200]}")
    if said.get("type") == "ERROR":
        raise _error(item)
    try:
        change, version = Change(said.get("type")), version_of(item)
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterError(f"a watch event that cannot be read: {line[:200]}") from error
    return WatchEvent(change, kind, trimmed(kind, item), version)


def _error(status: dict[str, Any]) -> ClusterError:
    """Return the error that the stream reports in a Status."""
    code = status.get("code")
    message = f"{code} {status.get('message', '')}".rstrip()
    return error_of(code if isinstance(code, int) else 0, message, status)
