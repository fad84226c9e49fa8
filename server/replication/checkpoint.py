"""Checkpoints: the whole state of a core as bytes, from which another process makes an equal core.

`server.state.pickled` says what the bytes are. Only a program whose classes have the same fields can read a checkpoint. `layout`
is the digest of the fields of all these classes.
"""

import dataclasses
import functools
import hashlib
import importlib
import io
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import BinaryIO, Final, NamedTuple

from server.core.core import Core
from server.replication import input_form
from server.state.copying import slots_of
from server.state.pickled import (
    PACKAGES,
    BadCheckpointError,
    Frames,
    Limited,
    frames_of,
    loaded,
    packed,
)

FORMAT: Final = 1
"""The number of the form of checkpoints. A reader refuses any other number."""


class Header(NamedTuple):
    """The beginning of a checkpoint: the program that wrote it, and the number of events and ticks that the core had received."""

    version: str
    layout: str
    position: int
    """The number of events and ticks that the core had received."""
    decided: int
    """The number of decisions that the core had made."""
    at_ms: int
    """The instant of the last tick."""
    terms: tuple[tuple[str, int], ...] = ()
    """The terms of leaders: the name of each, and the position at which it began."""


def written(core: Core, header: Header) -> Iterator[bytes]:
    """Yield the bytes of a checkpoint in parts. The core must not change while the parts are made."""
    return packed(frames_of(core, (FORMAT, *header)))


def read(file: BinaryIO) -> tuple[Header, Core]:
    """Return the header and a new core with the state of a checkpoint. Raise BadCheckpointError if the checkpoint cannot be used."""
    frames = Frames(file)
    return _header(frames), loaded(frames, Core)


def _header(frames: Frames) -> Header:
    try:
        name, *values = Limited(io.BytesIO(frames.next())).load()
        header = Header(*values) if name == FORMAT else None
    except BadCheckpointError:
        raise
    except Exception as error:
        raise BadCheckpointError(f"it has no header: {error!r}") from error
    if header is None:
        raise BadCheckpointError(f"its format is {name!r}, this version reads {FORMAT}")
    if header.layout != layout():
        raise BadCheckpointError(
            f"it is of version {header.version}, whose state or input has another layout than that of this version"
        )
    return header


@functools.cache
def layout() -> str:
    """Return the digest of the form of the input, and of the names and fields of all classes of the core, in hexadecimal."""
    text = hashlib.sha256(f"{FORMAT} {input_form.FORMAT}".encode())
    for kind in sorted(_classes(), key=lambda one: (one.__module__, one.__qualname__)):
        text.update(f"{kind.__module__}.{kind.__qualname__} {_fields(kind)}\n".encode())
    return text.hexdigest()


def _fields(kind: type) -> list[str]:
    if dataclasses.is_dataclass(kind):
        return [one.name for one in dataclasses.fields(kind)]
    return [*getattr(kind, "_fields", ()), *slots_of(kind)]


def _classes() -> Iterator[type]:
    for package in PACKAGES:
        for module in _modules(importlib.import_module(f"server.{package}")):
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == module.__name__:
                    yield value


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(one.name)
