"""The modes of files and folders. A core refuses or warns about files that other users of the machine may read or write.

A user who can write a file of roles or a kept configuration controls the core. A file of this kind is therefore refused if all
users may write to it. A file that others can read, or that a group can write, is used with a warning. Kubernetes mounts Secrets
with mode 0644 unless `defaultMode` says otherwise.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from server.model.reports import Finding

CODE: Final = "file-open-to-others"
ADVICE: Final = (
    "Run the command; in Kubernetes set `defaultMode: 0440` at the volume of the Secret."
)


def refused_file(path: Path, found: os.stat_result) -> str:
    """Return why a core must not use the file: all users may write to it. Return "" if the core may use the file."""
    if not found.st_mode & stat.S_IWOTH:
        return ""
    return f"{path}: everybody may write to it ({shown(found)}); look what it says, then run chmod o-w {path}"


def refused_owner(path: Path, found: os.stat_result, folder: os.stat_result, user: int) -> str:
    """Return why a core of this user must not use the file.

    The core refuses a file that another user put into a folder to which all users may write.

    Return "" if the core may use the file.
    """
    if not folder.st_mode & stat.S_IWOTH or found.st_uid in {user, folder.st_uid}:
        return ""
    return f"{path}: another user (uid {found.st_uid}) put it into a folder that everybody may write to; name a folder of your own"


def refused_folder(folder: Path) -> str:
    """Return why nothing should be kept in the folder: all users could replace its files. Return "" if the folder is safe.

    The folders above it are judged in the same way, up to the root of the volume. `warned_mount` judges the root of the volume.
    Raise OSError if a folder cannot be read.
    """
    at = folder.resolve(strict=True)
    for one in (at, *at.parents):
        if os.path.ismount(one):
            return ""
        found = one.stat()
        if _is_open(found):
            what = f"everybody may write to {'it' if one == at else f'its folder {one}'}"
            return f"{folder}: {what} ({shown(found)}); run chmod o-w {one}"
    return ""


def warned_mount(folder: Path) -> str:
    """Return the warning about a mounted volume that all users may write to, such as an emptyDir of Kubernetes.

    Return "" if there is nothing to warn about.
    """
    found = folder.stat()
    if not (os.path.ismount(folder) and _is_open(found)):
        return ""
    return f"{folder}: everybody who has this volume may write to it ({shown(found)}); mount it into this container alone"


def findings(private: Iterable[Path], public: Iterable[Path]) -> Iterator[Finding]:
    """Yield a warning for each private file that others can read, and for each file that its group can write."""
    for is_private, paths in ((True, private), (False, public)):
        for path in paths:
            if why := _exposed(path, is_private=is_private):
                yield Finding("warning", str(path), CODE, why, ADVICE)


def shown(found: os.stat_result) -> str:
    """Return the mode as text, such as `mode 0640`."""
    return f"mode {stat.S_IMODE(found.st_mode):04o}"


def _exposed(path: Path, *, is_private: bool) -> str:
    """Return how other users can read or change the file, and the command that prevents this.

    Return "" if other users can neither read nor change the file.
    """
    try:
        found = path.stat()
    except OSError:
        return ""  # The reader of the file reports a missing one.
    if is_private and found.st_mode & stat.S_IROTH:
        return f"{path}: everybody may read it ({shown(found)}); run chmod o-r {path}"
    if found.st_mode & stat.S_IWGRP:
        return f"{path}: its group may write to it ({shown(found)}); run chmod g-w {path}"
    return ""


def _is_open(folder: os.stat_result) -> bool:
    """Return whether all users may replace the files of a folder. The sticky bit of the folder prevents that."""
    return bool(folder.st_mode & stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX
