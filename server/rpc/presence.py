"""Which resource managers are there: when each last sent something, and since when none of its streams is open.

The operating system ends the streams of a process that is killed at once, gRPC's keep-alive those of a machine that
does not answer within 40 s. A manager that reconnects is away for a moment; only one that is away for longer than
`AWAY_GRACE_MS` is reported as away.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

AWAY_GRACE_MS: Final = 5_000
"""A reconnect takes less time."""


@dataclass(slots=True)
class _Seen:
    registered_ms: int = 0
    heard_ms: int = 0
    away_since_ms: int = 0


class Sighting(NamedTuple):
    """What is known of a registered manager at one instant. Times are 0 where there is none."""

    heard_ms: int
    """When its last message came."""
    away_since_ms: int
    """When its last stream ended; 0 while one is open."""
    away: bool
    """It has been away for longer than a reconnect takes."""


class Presence:
    """The registered managers, as many as `MANAGERS_MAX`."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def registered(self, rm_id: str, now: int, *, speaking: bool) -> None:
        """Note a registration; until a stream is opened the manager counts as away since then."""
        self._seen[rm_id] = _Seen(now, 0, 0 if speaking else now)

    def forget(self, rm_id: str) -> None:
        """Forget a manager that is gone."""
        self._seen.pop(rm_id, None)

    def heard(self, rm_id: str, now: int) -> bool:
        """Note a message; return whether the manager was away before it."""
        seen = self._seen.get(rm_id)
        if seen is None:
            return False
        was_away = bool(seen.away_since_ms)
        seen.heard_ms, seen.away_since_ms = now, 0
        return was_away

    def left(self, rm_id: str, now: int) -> bool:
        """Note that the manager's last stream ended; return whether that is news."""
        seen = self._seen.get(rm_id)
        if seen is None or seen.away_since_ms:
            return False
        seen.away_since_ms = now
        return True

    def sighting(self, rm_id: str, now: int) -> Sighting:
        """Return what is known of a manager."""
        seen = self._seen.get(rm_id) or _Seen()
        since = seen.away_since_ms
        return Sighting(seen.heard_ms, since, bool(since) and now - since >= AWAY_GRACE_MS)

    def away(self, now: int) -> Mapping[str, int]:
        """Return since when each manager is away that is reported as such, in order of registration."""
        found = ((rm_id, self.sighting(rm_id, now)) for rm_id in self._seen)
        return {rm_id: one.away_since_ms for rm_id, one in found if one.away}

    def connections(self, now: int) -> Mapping[str, tuple[bool, int]]:
        """Return whether each manager has a stream open, and seconds since its last message or registration."""
        return {
            rm_id: (not seen.away_since_ms, (now - max(seen.heard_ms, seen.registered_ms)) // 1_000)
            for rm_id, seen in self._seen.items()
        }
