"""The file that holds the state of an embedded cluster.

With this file, a shim that was killed continues with the same cluster. Each change is appended when it happens, before
a watch delivers it, so that a kill loses nothing. A power loss can lose the last changes. The file is rewritten,
atomically, when the process starts and whenever it has grown to several times the size of the state. A lock prevents a
second process from using the file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shim_client.embedded.saved import BadStateError, Saved, fold, line, records

STATE_FILE = "cluster.jsonl"
LOCK_FILE = "lock"
GROWTH_BYTES = 16 * 1024 * 1024
"""The file is rewritten when more bytes were appended than this number plus twice the size of the state."""
NAME_MAX = 40


class NoStateError(Exception):
    """The error when no state can be saved in a folder.

    The message names the folder and the reason.
    """


class StateInUseError(NoStateError):
    """The error when another running process uses the folder for its state."""


def default_folder(directory: Path, environment: Mapping[str, str]) -> Path:
    """Return the folder for the state of a cluster directory.

    The folder is below the user's state directory, and its name is made from the path of the cluster directory.
    """
    base = environment.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    path = directory.resolve()
    mark = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    return Path(base) / "evenhand" / "clusters" / f"{path.name[:NAME_MAX] or 'root'}-{mark}"


class StateFile:
    """The open state file of one cluster; `append` writes a record, and `close` releases the lock.

    Creating the object takes the lock of the folder. Raises NoStateError or StateInUseError. Nothing is written before
    `rewrite`.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / STATE_FILE
        self._lock = _locked(folder)
        self._file: int | None = None
        self._size, self._limit = 0, 0
        self.failure = ""
        """The reason why the state is no longer saved; empty while it is saved."""

    def read(self) -> Saved:
        """Return the saved state; an empty state when nothing is saved.

        Raises NoStateError, BadStateError.
        """
        try:
            with self.path.open("rb") as file:
                return fold(file)
        except FileNotFoundError:
            return Saved()
        except BadStateError as bad:
            raise BadStateError(f"{self.path}: {bad}") from bad
        except OSError as error:
            raise _no_state(self.path, error) from error

    def read_for(self, directory: Path) -> Saved:
        """Return the saved state of a cluster directory.

        Raises the errors of `read`, and BadStateError if the state belongs to another directory.
        """
        saved, path = self.read(), str(directory.resolve())
        if saved.directory not in ("", path):
            raise BadStateError(
                f"{self.path}: it is the state of another cluster directory, {saved.directory}"
            )
        return saved

    def rewrite(self, saved: Saved) -> None:
        """Replace the content of the file by this state.

        Raises NoStateError if the file cannot be written.
        """
        new = self.path.with_suffix(".new")
        try:
            new.unlink(missing_ok=True)
            with open(new, "xb", opener=_private) as file:
                file.writelines(map(line, records(saved)))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
            self._reopen()
        except OSError as error:
            raise _no_state(self.path, error) from error

    def append(self, record: Mapping[str, Any], whole: Callable[[], Saved]) -> None:
        """Append a record; `whole` returns the whole state when the file has to be rewritten.

        After the first error nothing more is written, and `failure` says why.
        """
        if self.failure or self._file is None:
            return
        try:
            self._write(line(record))
            if self._size > self._limit:
                self.rewrite(whole())
        except (OSError, NoStateError) as error:
            self.failure = str(error)

    def close(self) -> None:
        """Close the file and release the lock, so that another process can open it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _write(self, text: bytes) -> None:
        assert self._file is not None
        rest = memoryview(text)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._size += len(text)

    def _reopen(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = os.fstat(self._file).st_size
        self._limit = 3 * self._size + GROWTH_BYTES


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner may read, because manifests can have secrets."""
    return os.open(path, flags, 0o600)


def _locked(folder: Path) -> int:
    """Return a file descriptor that holds the lock of a folder.

    Raises NoStateError, StateInUseError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _no_state(folder, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StateInUseError(f"{folder}: another process keeps its cluster there") from error
    return lock


def _no_state(path: Path, error: OSError) -> NoStateError:
    return NoStateError(f"{path}: {error.strerror or error}")
