"""The part of a text that passes the schema check (`server.config.shape`).

Further checks use this part, so that one fault does not hide other faults.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from pydantic import ValidationError

from server.config import shape
from server.config.complaints import complain
from server.config.problems import PROBLEMS_MAX, Path, Reporter

ROUNDS_MAX: Final = 8
"""The largest number of attempts to leave out faulty values.

If a required key is missing because an attempt left it out, another attempt follows.
"""
_WHOLE: Final = ("limits", "preemption")
"""The sections whose entries are compared with each other. If one entry has a fault, the whole section is left out."""
_BESIDE_TREE: Final = frozenset(
    {"resources", "properties", "childtemplate", "weight", "maxapplications", "submitacl"}
    | {"adminacl", "limits"}
)
"""The keys of a queue that have no influence on its name and on the queues below it."""
_OF_QUEUE: Final = tuple(shape.Queue.model_fields)


def sound_part(value: object, unusable: Iterable[Path], reporter: Reporter) -> shape.File | None:
    """Return the file without the values of a wrong shape. Return None if no checkable part is found in ROUNDS_MAX attempts.

    The reporter gets the faults, and the paths that were left out because of these faults.
    """
    left_out = set(unusable)
    for attempt in range(ROUNDS_MAX):
        if () in left_out:
            break
        kept: dict[Path, tuple[int, ...]] = {}
        remaining = _without(value, left_out, (), kept)
        reporter.kept = kept
        try:
            file = shape.File.model_validate(remaining)
        except ValidationError as fault:
            if not attempt:
                complain(fault, reporter, left_out)
            left_out |= {_coarse(reporter.original(path)) for path in _fault_paths(fault)}
        else:
            reporter.leave_out(left_out)
            return file
    return None


def _fault_paths(fault: ValidationError) -> Iterable[Path]:
    """Yield the path to leave out for each error.

    The path is that of the faulty value, or of the mapping in which a key is missing.
    """
    for error in fault.errors(include_url=False, include_context=False, include_input=False):
        path: Path = tuple(part for part in error["loc"] if part != "[key]")
        yield path[:-1] if error["type"] == "missing" else path


def tree_is_known(queues: Path, reporter: Reporter) -> bool:
    """Return whether the names of all queues of a partition, and their places in the tree, could be read from the file.

    If the text has more faults than are listed, the result is False, and the faults are not examined.
    """
    if len(reporter.left_out) > PROBLEMS_MAX:
        return False
    top = reporter.original(queues)
    return not any(
        path[: len(top)] == top and _BESIDE_TREE.isdisjoint(map(_meant, path))
        for path in reporter.left_out
    )


def _meant(key: str | int) -> str | int:
    """Return the key of a queue that was probably meant. If no known key is similar, return the given key."""
    if isinstance(key, int) or key in _OF_QUEUE:
        return key
    close = get_close_matches(key.lower(), _OF_QUEUE, n=1)
    return close[0] if close else key


def _coarse(path: Path) -> Path:
    """Return the path to leave out for a faulty value: the path of the value, or of a section that is valid only as a whole."""
    for place, part in enumerate(path):
        if part in _WHOLE:
            return path[: place + 1]
        if part == "placementrules":
            return path[: place + 2]
    return path


def _without(
    value: object, left_out: set[Path], path: Path, kept: dict[Path, tuple[int, ...]]
) -> object:
    if isinstance(value, dict):
        return {
            key: _without(inner, left_out, (*path, key), kept)
            for key, inner in value.items()
            if (*path, key) not in left_out
        }
    if isinstance(value, list):
        numbers = tuple(number for number in range(len(value)) if (*path, number) not in left_out)
        if len(numbers) < len(value):
            kept[path] = numbers
        return [_without(value[number], left_out, (*path, number), kept) for number in numbers]
    return value
