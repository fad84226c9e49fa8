"""The messages about a text of the wrong shape: the errors of pydantic in the words of `queues.yaml`."""

from collections.abc import Container, Iterator
from difflib import get_close_matches
from functools import partial
from typing import Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from server.config import shape
from server.config.problems import Path, Reporter

_MESSAGES: Final = {
    "model_type": "must be a mapping, that is lines of `key: value`",
    "dict_type": "must be a mapping, that is lines of `key: value`",
    "list_type": "must be a list, that is lines that begin with `-`",
    "bool_type": "must be true or false, without quotes",
    "too_short": "needs at least one entry",
}


def complain(fault: ValidationError, reporter: Reporter, left_out: Container[Path] = ()) -> None:
    """Report every error of a validation at its path.

    A missing value is not reported if `server.config.partial` removed the value because of another fault.
    """
    for error in fault.errors(include_url=False):
        path: Path = tuple(part for part in error["loc"] if part != "[key]")
        if reporter.original(path) not in left_out:
            reporter.error(path, partial(_message, error, path))


def _message(error: ErrorDetails, path: Path) -> str:
    kind = error["type"]
    if kind == "extra_forbidden":
        return _unknown_key(path)
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "literal_error":
        return f"{error['input']!r} is not allowed here: expected {error['ctx']['expected']}"
    if error["input"] is None:
        return "has no value"
    return _MESSAGES.get(kind, error["msg"])


def _unknown_key(path: Path) -> str:
    """Return a message that names the unknown key.

    The message also names the key that was probably meant, or the section in which the key belongs.
    """
    key = str(path[-1])
    known = _keys(_section(path[:-1]))
    message = f"unknown key {key!r}"
    if close := get_close_matches(key.lower(), known, n=1):
        return f"{message}, did you mean {close[0]!r}?"
    if homes := sorted({home for home, section in _homes() if key in _keys(section)}):
        return f"{message}: it belongs under {' or '.join(homes)}"
    return f"{message}: known here are {', '.join(sorted(known))}"


def _section(path: Path) -> type[BaseModel]:
    """Return the model that describes the mapping at a path."""
    section: type[BaseModel] = shape.File
    for part in path:
        if isinstance(part, str):
            section = dict(_inner(section)).get(part, section)
    return section


def _inner(section: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield each key of a section whose value is another section, and the model of that other section."""
    for name, info in section.model_fields.items():
        for model in _models(info.annotation):
            yield info.alias or name, model


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _keys(section: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in section.model_fields.items()]


def _homes() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield every key that holds a section, with the model of that section."""
    seen: set[type[BaseModel]] = set()
    open_sections: list[type[BaseModel]] = [shape.File]
    while open_sections:
        section = open_sections.pop()
        if section in seen:
            continue
        seen.add(section)
        for key, inner in _inner(section):
            yield f"`{key}`", inner
            open_sections.append(inner)
