"""The presence of resource managers: the time of each manager's last message, and the time since which it has no open stream.

When a process is killed, the operating system ends its streams at once. When a machine does not answer, gRPC's keep-alive ends
its streams within 40 s. A manager that reconnects is away for a moment. A manager is therefore reported as away only when it has
been away for `AWAY_GRACE_MS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

AWAY_GRACE_MS: Final = 5_000
"""The milliseconds in which a manager may reconnect. A shorter absence is not reported."""


@dataclass(slots=True)
class _Seen:
    registered_ms: int = 0
    heard_ms: int = 0
    away_since_ms: int = 0


class Sighting(NamedTuple):
    """The presence of a registered manager at one instant. Times are Unix milliseconds, or 0 if there is no such time."""

    heard_ms: int
    """The time of the manager's last message."""
    away_since_ms: int
    """The time when the manager's last stream ended, or when it registered without a stream.

    The time is 0 if the manager has sent a message since then.
    """
    away: bool
    """Whether the manager has been away for at least `AWAY_GRACE_MS`."""


class Presence:
    """The presence of each registered manager: the time of its last message, and the time since which it has been away.

    There are at most `MANAGERS_MAX` managers.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def registered(self, rm_id: str, now: int, *, speaking: bool) -> None:
        """Record a registration. Until the manager opens a stream, it counts as away since this instant."""
        self._seen[rm_id] = _Seen(now, 0, 0 if speaking else now)

    def forget(self, rm_id: str) -> None:
        """Forget a manager that is gone."""
        self._seen.pop(rm_id, None)

    def forget_all(self) -> None:
        """Forget all managers, because this core no longer leads. Its leader records whether managers are away."""
        self._seen.clear()

    def heard(self, rm_id: str, now: int) -> bool:
        """Record a message, and return whether the manager was away before this message.

        Return False for a manager that is not registered.
        """
        seen = self._seen.get(rm_id)
        if seen is None:
            return False
        was_away = bool(seen.away_since_ms)
        seen.heard_ms, seen.away_since_ms = now, 0
        return was_away

    def left(self, rm_id: str, now: int) -> bool:
        """Record that the manager's last stream ended, and return whether the manager was present before.

        Return False if the manager is not registered.
        """
        seen = self._seen.get(rm_id)
        if seen is None or seen.away_since_ms:
            return False
        seen.away_since_ms = now
        return True

    def sighting(self, rm_id: str, now: int) -> Sighting:
        """Return the presence of a manager.

        For a manager that is not registered, return the presence of a manager that has sent no message and is not away.
        """
        seen = self._seen.get(rm_id) or _Seen()
        since = seen.away_since_ms
        return Sighting(seen.heard_ms, since, bool(since) and now - since >= AWAY_GRACE_MS)

    def away(self, now: int) -> Mapping[str, int]:
        """Return since when each manager that is reported as away has been away, in order of registration."""
        found = ((rm_id, self.sighting(rm_id, now)) for rm_id in self._seen)
        return {rm_id: one.away_since_ms for rm_id, one in found if one.away}

    def connections(self, now: int) -> Mapping[str, tuple[bool, int]]:
        """Return, for each manager, whether it has a stream open, and the seconds since its last message or registration."""
        return {
            rm_id: (not seen.away_since_ms, (now - max(seen.heard_ms, seen.registered_ms)) // 1_000)
            for rm_id, seen in self._seen.items()
        }
