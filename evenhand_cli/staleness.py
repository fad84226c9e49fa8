"""Notices that an answer may be out of date: a resource manager is not connected, or has not reported everything yet."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

from evenhand.v1 import inspect_pb2
from evenhand_cli import terminal
from evenhand_cli.output import plain
from evenhand_cli.render.amounts import span
from evenhand_cli.render.words import clock_time


class Pictures:
    """The states of managers in the answers that a command got, and the notices about them. Each notice is printed once."""

    def __init__(
        self,
        say: Callable[[str], None] = terminal.say,
        note: Callable[[inspect_pb2.Picture], None] | None = None,
        *,
        names_follower: bool = True,
    ) -> None:
        """Make a printer of notices. ``say`` gets each line; the default function prints the line on the error stream.

        ``note`` gets the state that came with each answer. Without ``names_follower``, no line says that the core
        follows another core.
        """
        self._say = say
        self._note = note
        self._names_follower = names_follower
        self._latest: inspect_pb2.Picture | None = None
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def look_at(self, answer: Any) -> None:  # noqa: ANN401 - of any type
        """Print on the error stream which managers are not connected or have not reported everything yet."""
        picture = getattr(answer, "picture", None)
        if picture is None:
            return
        if self._note is not None:
            self._note(picture)
        with self._lock:  # The console makes several calls at the same time.
            self._latest = picture
            for key, line in _lines(picture, names_follower=self._names_follower):
                if key not in self._told:
                    self._told.add(key)
                    self._say(line)

    @property
    def latest(self) -> inspect_pb2.Picture | None:
        """The latest state of the managers, or None before the first answer with a state."""
        return self._latest

    def value(self) -> dict[str, Any]:
        """Return the latest state of the managers for the JSON output.

        If no answer had a state of the managers, the value is None.
        """
        return {"picture": None if self._latest is None else plain(self._latest)}


def _lines(picture: inspect_pb2.Picture, *, names_follower: bool) -> Iterator[tuple[str, str]]:
    """Yield a key and a line for each manager that is away or has not reported everything yet."""
    now = picture.taken_at_ms
    if picture.follows and names_follower:
        yield (
            f"follows {picture.follows}",
            f"picture of a core that does not decide: {_follower(picture, now)}",
        )
    for one in picture.away:
        when, gone = clock_time(one.since_ms, now), span(now - one.since_ms)
        line = f"picture of {when}: {_manager(one.rm_id)} is away for {gone}"
        yield f"away {one.rm_id} {one.since_ms}", line
    for rm_id in picture.syncing:
        line = f"picture is not complete: {_manager(rm_id)} still sends what it knows"
        yield f"syncing {rm_id}", line


def _follower(picture: inspect_pb2.Picture, now: int) -> str:
    """Return a line about how old the state of a follower may be."""
    if not picture.heard_ms:
        return f"it shows {picture.follows}, and has heard nothing since"
    if picture.behind:
        return f"it is {picture.behind:,} events and ticks behind {picture.follows}"
    return f"it follows {picture.follows}, heard {span(now - picture.heard_ms)} ago"


def _manager(rm_id: str) -> str:
    return f"its manager '{rm_id}'" if rm_id else "its manager"
