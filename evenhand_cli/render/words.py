"""Words and times in tables: coloured states, instants, lists of reasons."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from rich.text import Text

from evenhand.v1 import inspect_pb2
from evenhand_cli.output import word
from evenhand_cli.render.amounts import NOTHING
from server.model.phrases import agreeing, plural_of

STYLES = {
    "active": "good",
    "allocated": "good",
    "running": "good",
    "synced": "good",
    "draining": "warn",
    "releasing": "warn",
    "waiting": "warn",
    "pledged": "warn",
    "accepted": "warn",
    "syncing": "warn",
    "warning": "warn",
    "away": "warn",
    "planned": "warn",
    "ordered": "warn",
    "confirmed": "warn",
    "leaving": "warn",
    "fulfilled": "good",
    "aborted": "faint",
    "observed": "faint",
    "kept": "good",
    "gone": "faint",
    "vetoed": "bad",
    "expired": "bad",
    "placed": "good",
    "preempts": "warn",
    "waits": "bad",
    "refused": "bad",
    "stopped": "bad",
    "failing": "bad",
    "failed": "bad",
    "rejected": "bad",
    "error": "bad",
    "foreign": "faint",
    "completed": "faint",
    "completing": "faint",
}


def state(name: str) -> Text:
    """Return a state in its colour."""
    return Text(name, style=STYLES.get(name.lower(), ""))


def enum_state(enum: EnumTypeWrapper, number: int) -> Text:
    """Return the state of an enumerated field."""
    return state(word(enum.DESCRIPTOR, number))


def instant(milliseconds: int) -> str:
    """Return Unix milliseconds as local time with its zone.

    The date is added unless the instant is today. Return a dash for 0.
    """
    if not milliseconds:
        return NOTHING
    at = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    is_today = at.timetuple()[:3] == time.localtime()[:3]
    return at.strftime("%H:%M:%S %Z" if is_today else "%Y-%m-%d %H:%M:%S %Z")


def clock_time(milliseconds: int, now: int) -> str:
    """Return Unix milliseconds as local time of day. The date is added unless it is the date of `now`."""
    at, today = (
        datetime.fromtimestamp(one / 1000, UTC).astimezone() for one in (milliseconds, now)
    )
    return at.strftime("%H:%M:%S" if at.date() == today.date() else "%Y-%m-%d %H:%M:%S")


def reasons(counts: Sequence[inspect_pb2.ReasonCount], limit: int = 2) -> str:
    """Return the most frequent reasons: `12 queue-limit, 3 no-node, ...`."""
    shown = [f"{one.count:,} {one.code}" for one in counts[:limit]]
    return ", ".join([*shown, "..."] if len(counts) > limit else shown)


def plural(count: int, noun: str, verb: str = "") -> str:
    """Return a number with its noun: `1 node`, `2 nodes`.

    If ``verb`` is given in the plural, it follows in the form that agrees with the number: `1 node is`.
    """
    text = f"{count:,} {noun if count == 1 else plural_of(noun)}"
    return f"{text} {agreeing(verb, count)}" if verb else text


def some(names: Sequence[str], most: int) -> str:
    """Return the first `most` names and the number of further names: `a, b and 3 more`. The list of names is not empty."""
    more = [f"{len(names) - most:,} more"] if len(names) > most else []
    *shown, last = [*names[:most], *more]
    return f"{', '.join(shown)} and {last}" if shown else last
