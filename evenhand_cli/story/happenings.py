"""The lines of a step in plain words, such as `crunch-1 to crunch-3 of crunch run on node-1, with 2 cores each`."""

from collections.abc import Callable, Mapping
from typing import Final

from evenhand_cli.render.amounts import phrase
from evenhand_cli.render.decision_line import listed
from evenhand_cli.story.words import TYPES, Words, head, row

NAMES_MAX: Final = 2
"""Maximum number of names that are listed one by one; more names are written as a range."""
ALLOWS: Final = {"gone": "is gone", "0": "allows no disruption now", "1": "allows 1 disruption now"}


def happening(line: str) -> str:
    """Return a line of a step as a phrase; settings for which the phrase has no words follow in parentheses."""
    verb, name = head(line)
    words = Words.of(line)
    words.plain[:2] = []
    names = row(name)
    subject = listed(names, NAMES_MAX)
    told = _PHRASES[verb](words, subject, len(names))
    rest = [*words.plain, *_settings(words.options, words.used)]
    return f"{told} ({', '.join(rest)})" if rest else told


def _settings(options: Mapping[str, str], used: set[str]) -> list[str]:
    return [
        f"priority {value}" if name == "priority" else f"{name}={value}"
        for name, value in options.items()
        if name not in used
    ]


def _amounts(words: Words, many: int) -> str:
    """Return the amounts of a line as a phrase such as `2 cores each`."""
    amounts = dict(words.resource())
    return f"{phrase(amounts)}{' each' if many > 1 else ''}"


def _has_amounts(words: Words) -> bool:
    return any(kind in words.options for kind in TYPES)


def _does(many: int, one: str, several: str) -> str:
    return one if many == 1 else several


def _node(words: Words, name: str, many: int) -> str:
    return f"{name} {_does(many, 'joins', 'join')} with {_amounts(words, many)}"


def _resize(words: Words, name: str, many: int) -> str:
    return f"{name} now {_does(many, 'has', 'have')} {_amounts(words, many)}"


def _application(words: Words, name: str, many: int) -> str:
    queue = words.next("")
    comes = _does(many, "application", "applications")
    return f"{comes} {name} in {queue}" if queue else f"{comes} {name}"


def _ask(words: Words, name: str, many: int) -> str:
    owner = words.next("")
    asks = f"{name} of {owner} {_does(many, 'asks', 'ask')}"
    return f"{asks} for {_amounts(words, many)}" if _has_amounts(words) else asks


def _existing(words: Words, name: str, many: int) -> str:
    owner, node = words.next(""), words.next("")
    runs = f"{name} of {owner} {_does(many, 'runs', 'run')} on {node}"
    return f"{runs} with {_amounts(words, many)}" if _has_amounts(words) else runs


def _foreign(words: Words, name: str, many: int) -> str:
    runs = _does(many, "runs", "run")
    return f"{name} of another scheduler {runs} on {words.next('')} with {_amounts(words, many)}"


def _disruptions(words: Words, name: str, many: int) -> str:
    del many
    allowed = words.next("")
    return f"budget {name} {ALLOWS.get(allowed, f'allows {allowed} disruptions now')}"


def _says(one: str, several: str = "") -> Callable[[Words, str, int], str]:
    """Return a function that puts the name into a phrase for one or for several objects."""

    def told(words: Words, name: str, many: int) -> str:
        del words
        return _does(many, one, several or one).format(name)

    return told


_PHRASES: Final[dict[str, Callable[[Words, str, int], str]]] = {
    "register": _says("resource manager {} registers"),
    "synced": _says("resource manager {} has sent everything"),
    "node": _node,
    "resize": _resize,
    "relabel": _says("{} has other labels", "{} have other labels"),
    "taint": _says("{} has other taints", "{} have other taints"),
    "drain": _says("{} is drained", "{} are drained"),
    "enable": _says("{} takes pods again", "{} take pods again"),
    "remove": _says("{} leaves", "{} leave"),
    "app": _application,
    "retag": _says("application {} has other tags", "applications {} have other tags"),
    "end": _says("application {} ends", "applications {} end"),
    "ask": _ask,
    "existing": _existing,
    "foreign": _foreign,
    "release": _says("{} ends", "{} end"),
    "release-all": _says("all pods of {} end"),
    "confirm": _says("the eviction of {} has ended", "the evictions of {} have ended"),
    "replaced": _says("placeholder {} is gone", "placeholders {} are gone"),
    "veto": _says("{} cannot be evicted"),
    "agrees": _says(
        "the manager agrees to the plan for {}", "the manager agrees to the plans for {}"
    ),
    "refuses": _says("the manager refuses the plan for {}", "the manager refuses the plans for {}"),
    "disruptions": _disruptions,
}
"""A phrase for each verb of `words.py`."""
