"""The configuration in force when a core starts.

A core starts with the configuration of the configuration file, or with the configuration that was in force when the previous run
ended.

A source such as a file or a ConfigMap sends its text at each start. An operator may have applied another configuration since the
last start. The text of a source replaces the operator's configuration only if this text has changed since it was sent last.
"""

from typing import NamedTuple

from server.model.revisions import Revision
from server.record.kept import Kept


class File(NamedTuple):
    """The configuration file at the start: its source, its text and the digest of the text."""

    source: str
    text: str
    digest: str


class Restored(NamedTuple):
    """The configuration at the start of a core.

    If two different configurations were found, ``note`` says which of them is in force and why. Otherwise ``note`` is empty.
    """

    kept: Kept
    is_file: bool
    """Whether the file's configuration is in force."""
    note: str = ""
    is_new_file: bool = False
    """Whether there is a configuration file that did not exist at the last start, or that had another content then."""


def restored(file: File | None, kept: Kept | None) -> Restored | None:
    """Return the configuration to start with: that of the file, or the configuration that was in force before.

    Return None if neither exists.
    """
    if file is None:
        return None if kept is None else Restored(kept, is_file=False)
    if kept is None:
        first = Revision(1, file.digest, file.source)
        return Restored(Kept(first, file.text, {}, file.digest), is_file=True, is_new_file=True)
    is_new = kept.file != file.digest
    if kept.revision.digest == file.digest:
        return Restored(kept._replace(file=file.digest), is_file=True, is_new_file=is_new)
    if not is_new:
        note = f"{kept.revision} was applied after {file.source} was changed last, so it is in force and the file is not"
        return Restored(kept, is_file=False, note=note)
    revision = Revision(kept.revision.number + 1, file.digest, file.source)
    note = (
        f"{file.source} is another one than at the last start, so it is in force as revision {revision.number}; "
        f"before it, {kept.revision} was"
    )
    now = Kept(revision, file.text, kept.given, file.digest)
    return Restored(now, is_file=True, note=note, is_new_file=True)
