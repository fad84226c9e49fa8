"""The `properties` of queues and child templates: their names, their values, and the values that children inherit.

`priority.policy`, `priority.offset` and `preemption.delay` are not inherited. The delay has an effect on leaves only (G1). Of the
values of `preemption.policy`, only `disabled` is inherited. All other properties are inherited, and a queue's own value takes
precedence.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from typing import Any, Final

from server.config.problems import Path, Reporter
from server.config.quantities import duration_ms, share_permyriad, whole
from server.model.quota import (
    PREEMPTION_DELAY,
    PROPERTY_FIELDS,
    QUOTA_DELAY,
    PreemptionPolicy,
    PriorityPolicy,
    QueueProperties,
    SortPolicy,
)

STATEAWARE: Final = "stateaware"
INT32: Final = 1 << 31

Read = Callable[[str], object]


def _one_of(allowed: type[StrEnum]) -> Read:
    def read(written: str) -> StrEnum:
        if written not in list(allowed):
            raise ValueError(
                f"{written!r} is not allowed here: expected {_alternatives(list(allowed))}"
            )
        return allowed(written)

    return read


def _word(*allowed: str) -> Read:
    def read(written: str) -> str:
        if written not in allowed:
            raise ValueError(f"{written!r} is not allowed here: expected {_alternatives(allowed)}")
        return written

    return read


def _alternatives(words: list[StrEnum] | tuple[str, ...]) -> str:
    *first, last = [f"'{word}'" for word in words]
    return f"{', '.join(first)} or {last}"


def _sort_policy(written: str) -> object:
    return SortPolicy.FIFO if written == STATEAWARE else _one_of(SortPolicy)(written)


def _enabled(written: str) -> bool:
    return _word("enabled", "disabled")(written) == "enabled"


def _not_negative(written: str) -> int:
    if (duration := duration_ms(written)) < 0:
        raise ValueError(f"the duration {written!r} is negative")
    return duration


def _preemption_delay(written: str) -> int:
    """Return a delay in milliseconds. For a text that is not a positive duration, return the default, as in YuniKorn.

    `own_values` warns of such a text.
    """
    try:
        delay = duration_ms(written)
    except ValueError:
        delay = 0
    return delay if delay > 0 else QueueProperties().preemption_delay_ms


_READERS: Final[Mapping[str, Read]] = {
    "application.sort.policy": _sort_policy,
    "application.sort.priority": _enabled,
    "priority.policy": _one_of(PriorityPolicy),
    "priority.offset": lambda text: whole(text, -INT32, INT32 - 1),
    "preemption.policy": _one_of(PreemptionPolicy),
    PREEMPTION_DELAY: _preemption_delay,
    "preemption.minruntime": _not_negative,
    QUOTA_DELAY: _not_negative,
    "quota.preemption.miss": share_permyriad,
    "quota.preemption.overshoot": _word("last", "none"),
    "quota.preemption.timer": _word("restart", "keep-earliest"),
    "quota.preemption.shortfall": _word("proceed", "abstain"),
}
PROPERTIES: Final[dict[str, tuple[str, Read]]] = {
    name: (field, _READERS[name]) for name, field in PROPERTY_FIELDS.items()
}
"""For each property: the field of `QueueProperties` that the property sets, and the function that reads its value."""
_WITHOUT_EFFECT: Final = (
    "application.unschedasks.backoff",
    "application.unschedasks.backoff.delay",
)


def own_values(written: Mapping[str, str], path: Path, reporter: Reporter) -> dict[str, Any]:
    """Return the fields of `QueueProperties` that a queue sets itself, and report problems. A value that cannot be read is left out."""
    values: dict[str, Any] = {}
    for name, text in written.items():
        where = (*path, name)
        if name in _WITHOUT_EFFECT:
            _warn_of_backoff(where, reporter)
        elif name not in PROPERTIES:
            reporter.error(where, partial(_unknown, name))
        else:
            field, read = PROPERTIES[name]
            try:
                values[field] = read(text)
            except ValueError as fault:
                reporter.error(where, str(fault))
            _warn_of_replacement(name, text, where, reporter)
    return values


def _unknown(name: str) -> str:
    known = (*PROPERTIES, *_WITHOUT_EFFECT)
    close = get_close_matches(name.lower(), known, n=1, cutoff=0.7)
    hint = f", did you mean {close[0]!r}?" if close else f": known are {', '.join(sorted(known))}"
    return f"unknown property {name!r}{hint}"


def _warn_of_backoff(where: Path, reporter: Reporter) -> None:
    reporter.warning(
        where,
        "backoff-unused",
        "has no effect",
        "an ask that cannot be placed is set aside until something changes that could help it,"
        " so applications need no back-off",
    )


def _warn_of_replacement(name: str, text: str, where: Path, reporter: Reporter) -> None:
    if text == STATEAWARE and name == "application.sort.policy":
        reporter.warning(
            where,
            "stateaware-is-fifo",
            "'stateaware' is read as 'fifo'",
            "applications are served in order of submission",
        )
    if name == PREEMPTION_DELAY and not _is_positive(text):
        reporter.warning(
            where,
            "delay-default",
            f"{text!r} is not a positive duration",
            "the default of 30s is used instead",
        )


def _is_positive(text: str) -> bool:
    try:
        return duration_ms(text) > 0
    except ValueError:
        return False
