"""The file with the configuration in force, from which a restarted core reads it.

A crash leaves either the old or the new content (see `whole_file`). A checksum covers the whole file. A file that was changed or
cut is refused, and no part of it is used.
"""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from server.model.revisions import Revision
from server.record import canonical, whole_file
from server.record.canonical import BadLineError
from server.record.record_file import MODE, RecordError
from server.record.serialization import BadFormError, Fields, Forms

FORMAT: Final = 1
KEPT_BYTES_MAX: Final = 32 << 20
"""The largest number of bytes of the kept file.

A configuration has at most 2 MiB, and a character of it takes up to 12 bytes in the file.
"""
_NAME: Final = "configuration.json"
_CHECKSUM: Final = "checksum"


class Kept(NamedTuple):
    """The configuration in force with its revision, and the digest of the last text of each source of configurations."""

    revision: Revision
    text: str
    given: Mapping[str, str] = {}
    """The digests of the configuration texts of the resource managers, by manager."""
    file: str = ""
    """The digest of the configuration file, or empty if there was no file."""


_FORM: Final = Fields(Kept, Forms().of)


def kept_file(state_dir: Path | None, decision_log: Path | None) -> Path | None:
    """Return the path of the kept configuration: in ``state_dir``, else beside the decision log.

    Return None if neither ``state_dir`` nor a decision log is configured.
    """
    if state_dir is not None:
        return state_dir / _NAME
    if decision_log is not None:
        return decision_log.with_name(f"{decision_log.name}.{_NAME}")
    return None


def write_kept(path: Path, kept: Kept) -> None:
    """Write the file. Raise OSError on an error. After an error, the old file stays as it is, unless only the sync of the folder failed.

    If that sync failed, the new file is in place, but a loss of power may bring the old file back.
    """
    facts = {"format": FORMAT, **_FORM.write(kept)}
    facts[_CHECKSUM] = canonical.digest(canonical.line(facts))
    whole_file.write(path, [canonical.line(facts)], MODE)


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
    with whole_file.opened(path) as file:
        return file.read(KEPT_BYTES_MAX)


def _damaged(path: Path, why: str) -> RecordError:
    return RecordError(
        f"{path}: the configuration that is kept there is damaged: {why}; restore the file, or move it away: the core then"
        " starts with the file of `--config` or with what shims register, and what was applied is to be applied again"
    )
