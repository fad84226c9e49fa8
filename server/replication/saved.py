"""The file with the state of a core, from which the next run of the core continues (design 7.3)."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from server.core.core import Core
from server.record import whole_file
from server.record.record_file import RecordError
from server.replication import checkpoint
from server.replication.checkpoint import Header
from server.state.pickled import BadCheckpointError

NAME: Final = "state.checkpoint"
"""The name of the file in the folder of `--state-dir`."""
_MODE: Final = 0o600


class Saved(NamedTuple):
    """The state that an earlier run left. If the state cannot be used, ``why_not`` says why."""

    header: Header | None = None
    core: Core | None = None
    why_not: str = ""


def write(path: Path, parts: Iterable[bytes]) -> None:
    """Write a checkpoint. Raise OSError on an error. After an error, the old file stays as it is."""
    whole_file.write(path, parts, _MODE)


def read(path: Path) -> Saved:
    """Return the state that the file holds.

    If the file cannot be used, the result has no state, and ``why_not`` has the reason. If there is no file, ``why_not`` is
    empty.
    """
    try:
        with whole_file.opened(path) as file:
            return Saved(*checkpoint.read(file))
    except FileNotFoundError:
        return Saved()
    except OSError as error:
        return Saved(why_not=f"{path}: {error.strerror}")
    except RecordError as error:
        return Saved(why_not=str(error))
    except BadCheckpointError as error:
        return Saved(why_not=f"{path}: {error}")


def set_aside(path: Path) -> Path:
    """Rename the file, so that no run begins with it, and return its new path. Do nothing if there is no file.

    Raise OSError if the file cannot be renamed.
    """
    aside = path.with_name(f"{path.name}.failed")
    with suppress(FileNotFoundError):
        path.replace(aside)
    return aside
