"""The file with the configuration in force, from which a restarted core reads it.

A new file is written completely beside the old file, synced, and then renamed to the old file's name. A crash therefore leaves
either the old or the new content. A checksum covers the whole file. A file that was changed or cut is refused, and no part of
it is used.
"""

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from server.model.revisions import Revision
from server.record import canonical
from server.record.canonical import BadLineError
from server.record.record_file import MODE, RecordError, check_file
from server.record.serialization import BadFormError, Fields, Forms

FORMAT: Final = 1
KEPT_BYTES_MAX: Final = 32 << 20
"""The largest number of bytes of such a file. A configuration has at most 2 MiB, and a character takes up to 12 bytes here."""
_NAME: Final = "configuration.json"
_CHECKSUM: Final = "checksum"
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Kept(NamedTuple):
    """The configuration in force with its revision, and the digests of the texts that its sources sent last.

    ``given`` has the digest by resource manager. ``file`` is the digest for the configuration file, empty if there was no file.
    """

    revision: Revision
    text: str
    given: Mapping[str, str] = {}
    file: str = ""


_FORM: Final = Fields(Kept, Forms().of)


def kept_file(state_dir: Path | None, decision_log: Path | None) -> Path | None:
    """Return the path of the kept configuration: in ``state_dir``, else beside the decision log. Return None if neither is configured."""
    if state_dir is not None:
        return state_dir / _NAME
    if decision_log is not None:
        return decision_log.with_name(f"{decision_log.name}.{_NAME}")
    return None


def write_kept(path: Path, kept: Kept) -> None:
    """Write the file. Raise OSError on an error. The old file then stays as it is, unless only the sync of the folder failed.

    In that case the new file is in place, but a loss of power may bring the old one back.
    """
    facts = {"format": FORMAT, **_FORM.write(kept)}
    facts[_CHECKSUM] = canonical.digest(canonical.line(facts))
    following = path.with_name(f"{path.name}.new")
    following.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(following, _WRITE_FLAGS, MODE), "wb") as file:
            file.write(canonical.line(facts))
            file.flush()
            os.fsync(file.fileno())
        following.replace(path)
    except OSError:
        following.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def read_kept(path: Path) -> Kept | None:
    """Return the content of the file, or None if there is no file. Raise RecordError for a file that cannot be used."""
    try:
        written = _contents(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RecordError(f"{path}: is a symbolic link; name the file itself") from error
        raise RecordError(f"{path}: {error.strerror}; name a file that can be read") from error
    try:
        facts = canonical.parsed(written)
    except BadLineError as error:
        raise _damaged(path, str(error)) from error
    found = facts.pop("format", None)
    if found != FORMAT:
        what = f"its format is {found}, this version reads {FORMAT}"
        raise RecordError(f"{path}: {what}; start the version that wrote it")
    checksum = facts.pop(_CHECKSUM, None)
    if canonical.digest(canonical.line({"format": FORMAT, **facts})) != checksum:
        raise _damaged(path, "its checksum is that of another text")
    try:
        kept = _FORM.read(facts)
    except BadFormError as error:
        raise _damaged(path, str(error)) from error
    assert isinstance(kept, Kept)
    return kept


def _contents(path: Path) -> bytes:
    with os.fdopen(os.open(path, _READ_FLAGS), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise RecordError(f"{path}: is no regular file; move it away")
        check_file(path, found)
        return file.read(KEPT_BYTES_MAX)


def _damaged(path: Path, why: str) -> RecordError:
    return RecordError(
        f"{path}: the configuration that is kept there is damaged: {why}; restore the file, or move it away: the core then"
        " starts with the file of `--config` or with what shims register, and what was applied is to be applied again"
    )


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the new name also survives a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
