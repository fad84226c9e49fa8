"""The choice of the configuration with which a core starts: the configuration file, or the configuration of the earlier run."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import structlog

from server.config import load
from server.config.header import without_header
from server.core.core import Core
from server.model.assignment import Assignment
from server.model.quota import Configuration
from server.model.reports import Finding
from server.model.revisions import Beginning, Revision
from server.record.kept import read_kept
from server.record.previous import Previous
from server.record.record_file import RecordError
from server.record.restored import File, restored
from server.rpc.access import BadOptionError

DIGEST_SHOWN: Final = 12
"""The number of characters of a digest that are shown. Twelve characters are enough to tell the digests of two texts apart."""
ADVICE: Final = {
    "configuration-replaced": "If that is not wanted, apply the other one again: `evenhand config apply FILE`.",
    "configuration-kept": "If that is not wanted, apply the file: `evenhand config apply FILE`.",
}
_log = structlog.get_logger("server")


class Files(Protocol):
    """The options that name the configuration file, or give its text if the caller has read it."""

    @property
    def config_file(self) -> Path | None:
        """The configuration file, or None if the options name no file."""

    @property
    def config_text(self) -> str | None:
        """The text of the file, or None if this process has to read it."""

    @property
    def assignment(self) -> Assignment | None:
        """The partitions for which this core decides, or None if it decides for all partitions."""


class Begun(NamedTuple):
    """The configuration at a core's start. ``file`` is the digest of the configuration file.

    ``note`` says whether the file or the configuration of the earlier run was chosen, and why.
    """

    configuration: Configuration | None = None
    beginning: Beginning | None = None
    file: str = ""
    note: str = ""
    is_file: bool = True
    before: Previous | None = None
    """The last configuration of the previous run, from the decision log."""
    is_earlier: bool = False
    """Whether the configuration is from an earlier run.

    A saved state with a newer revision takes precedence over such a configuration.
    """


def begun(options: Files, path: Path | None) -> Begun:
    """Choose between the configuration file and the configuration of an earlier run.

    Raise BadOptionError if one of these configurations cannot be used.
    """
    configuration = _configuration(options.config_file, options.config_text)
    file = None
    if configuration is not None and options.config_file is not None:
        source = f"file {options.config_file.name}"
        file = File(source, configuration.text, configuration.digest)
    try:
        found = restored(file, read_kept(path) if path else None)
    except RecordError as error:
        raise BadOptionError(str(error)) from error
    if found is None:
        alone = Beginning(Revision(), configured=False, assignment=options.assignment)
        return Begun(beginning=alone if options.assignment else None)
    if not found.is_file:
        configuration = _kept_configuration(found.kept.text, path)
    kept, is_file = found.kept, file is not None
    beginning = Beginning(kept.revision, kept.given, is_file, options.assignment)
    return Begun(
        configuration,
        beginning,
        found.kept.file,
        found.note,
        found.is_file,
        is_earlier=not found.is_new_file,
    )


def _kept_configuration(text: str, path: Path | None) -> Configuration:
    configuration, problems = load(text, str(path))
    if configuration is None:
        raise BadOptionError(
            "\n".join(map(str, problems))
            + f"\n{path}: this version cannot use the configuration that is kept there; start the version that kept it, or "
            "move the file away and apply the configuration again"
        )
    return configuration


def _configuration(file: Path | None, text: str | None) -> Configuration | None:
    """Return the checked configuration of a file, or None without a file.

    Raise BadOptionError with every problem and its line.
    """
    if file is None:
        return None
    if text is None:
        text = _read(file)
    configuration, problems = load(text, str(file))
    if configuration is None:
        raise BadOptionError("\n".join(map(str, problems)))
    for problem in problems:
        _log.warning("configuration", problem=str(problem))
    return configuration


def _read(file: Path) -> str:
    try:
        return without_header(file.read_text(encoding="utf-8"))[1]
    except (OSError, UnicodeDecodeError) as error:
        raise BadOptionError(f"{file}: {error}") from error


def chosen(core: Core, begun: Begun) -> Callable[[], list[Finding]]:
    """Return a function that returns the finding of the doctor on the choice between two configurations.

    There is no finding once another configuration is in force.
    """
    now = core.state.configuration.digest
    code = "configuration-replaced" if begun.is_file else "configuration-kept"
    message = begun.note
    if not message and begun.file and begun.before and begun.before.digest not in {"", now}:
        # An earlier version kept nothing, or the file was moved.
        source = f" ({begun.before.source})" if begun.before.source else ""
        message = (
            f"the previous run ended with configuration {begun.before.digest[:DIGEST_SHOWN]}{source}, "
            f"now {now[:DIGEST_SHOWN]} ({core.state.revision.source}) is in force"
        )
    if not message:
        return list
    _log.warning(code, message=message)
    found = Finding("note", "configuration", code, message, ADVICE[code])
    return lambda: [found] if core.state.configuration.digest == now else []
