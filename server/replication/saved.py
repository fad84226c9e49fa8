"""The file with the state of a core, from which the next run of the core continues (design 7.3).

A new file is written completely beside the old one, synced, and then renamed to the old one's name. After a crash the folder thus
has one whole file: the old one or the new one.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from server.core.core import Core
from server.replication import checkpoint
from server.replication.checkpoint import BadCheckpointError, Header

NAME: Final = "state.checkpoint"
"""The name of the file in the folder of `--state-dir`."""
_MODE: Final = 0o600
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Saved(NamedTuple):
    """The state that an earlier run left. If it cannot be used, ``why_not`` says why."""

    header: Header | None = None
    core: Core | None = None
    why_not: str = ""


def write(path: Path, parts: Iterable[bytes]) -> None:
    """Write a checkpoint. Raise OSError on an error. The old file then stays as it is."""
    following = path.with_name(f"{path.name}.new")
    try:
        with os.fdopen(os.open(following, _WRITE, _MODE), "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        following.replace(path)
    except OSError:
        following.unlink(missing_ok=True)
        raise


def read(path: Path) -> Saved:
    """Return the state that the file holds.

    Return none, with the reason in ``why_not``, if the file cannot be used, and without a reason if there is no file.
    """
    try:
        with os.fdopen(os.open(path, _READ), "rb") as file:
            return Saved(*checkpoint.read(file))
    except FileNotFoundError:
        return Saved()
    except OSError as error:
        return Saved(why_not=f"{path}: {error.strerror}")
    except BadCheckpointError as error:
        return Saved(why_not=f"{path}: {error}")
