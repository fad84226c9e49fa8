"""The part of a text whose shape is right, so that a fault in one place does not hide the faults in others."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from pydantic import ValidationError

from server.config import shape
from server.config.complaints import complain
from server.config.problems import PROBLEMS_MAX, Path, Reporter

ROUNDS_MAX: Final = 8
"""The most attempts to leave out what is faulty; what a list or mapping lacks afterwards takes another one."""
_WHOLE: Final = ("limits", "preemption")
"""The sections whose entries are compared with each other: with one fault inside, nothing of them is judged."""
_BESIDE_TREE: Final = frozenset(
    {"resources", "properties", "childtemplate", "weight", "maxapplications", "submitacl"}
    | {"adminacl", "limits"}
)
"""Keys of a queue that say nothing of its name or of the queues below it."""
_OF_QUEUE: Final = tuple(shape.Queue.model_fields)


def sound_part(value: object, unusable: Iterable[Path], reporter: Reporter) -> shape.File | None:
    """Return the file without what is faulty in its shape; None where nothing that can be judged remains.

    The reporter gets the faults, and what was left out for them.
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
    """Yield what to leave out for each error: the faulty value, or the mapping that lacks a key."""
    for error in fault.errors(include_url=False, include_context=False, include_input=False):
        path: Path = tuple(part for part in error["loc"] if part != "[key]")
        yield path[:-1] if error["type"] == "missing" else path


def tree_is_known(queues: Path, reporter: Reporter) -> bool:
    """Return whether each queue of a partition is there, with its name and the queues below it.

    For a text with more faults than are listed the answer is no, without a look at each of them.
    """
    if len(reporter.left_out) > PROBLEMS_MAX:
        return False
    top = reporter.original(queues)
    return not any(
        path[: len(top)] == top and _BESIDE_TREE.isdisjoint(map(_meant, path))
        for path in reporter.left_out
    )


def _meant(key: str | int) -> str | int:
    """Return the key of a queue that was probably meant; the key itself where none is near."""
    if isinstance(key, int) or key in _OF_QUEUE:
        return key
    close = get_close_matches(key.lower(), _OF_QUEUE, n=1)
    return close[0] if close else key


def _coarse(path: Path) -> Path:
    """Return what is left out for a fault: the value itself, or the section that only counts as a whole."""
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
