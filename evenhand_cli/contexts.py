"""Contexts in the user's configuration file. A context names a core and the files that give access to the core.

The file is `$EVENHAND_CONFIG`, else `evenhand/config.yaml` below `$XDG_CONFIG_HOME` or `~/.config`:

    current: production
    contexts:
      production:
        core: core.example:50051
        tls-ca: ca.crt
        token-file: ada.token
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.files import read_text
from evenhand_cli.near import near_matches

VARIABLE = "EVENHAND_CONFIG"
WHERE = "--context or EVENHAND_CONTEXT"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
FILE_MODE = 0o600
FILE_FIELDS = frozenset({"tls-ca", "tls-cert", "tls-key", "token-file"})


@dataclass(frozen=True, slots=True)
class Context:
    """The address of a core and the files that give access to it.

    A field that is not set is empty.
    """

    core: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_server_name: str = ""
    token_file: str = ""

    def values(self) -> dict[str, str]:
        """Return the fields that are set, with their names in the file as keys."""
        named = {spelled(one.name): getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in named.items() if value}


@dataclass(frozen=True, slots=True)
class Contexts:
    """The content of the configuration file."""

    file: Path
    current: str = ""
    known: Mapping[str, Context] = field(default_factory=dict)

    def named(self, name: str, where: str = WHERE) -> Context:
        """Return the context with this name.

        Raises Fault if no context has this name. The fault names similar names if there are any.
        """
        if name in self.known:
            return self.known[name]
        near = near_matches(name, self.known)
        advice = (
            near or "list them with `evenhand context list`, make one with `evenhand context set`"
        )
        raise Fault(f"there is no context `{name}` in {self.file}", where=where, advice=advice)

    def chosen(self, name: str) -> Context:
        """Return the context with this name, or the current context when no name is given.

        Return an empty context when no name is given and there is no current context. Raises Fault when no context
        has the given name.
        """
        if name:
            return self.named(name)
        if not self.current:
            return Context()
        return self.named(self.current, f"`current` in {self.file}")


def spelled(name: str) -> str:
    """Return a field's name as the file spells it: `tls-ca`."""
    return name.replace("_", "-")


FIELDS = {spelled(one.name): one.name for one in fields(Context)}


def attributes(context: Context) -> dict[str, str]:
    """Return the fields that are set, with their Python names as keys."""
    return {FIELDS[name]: value for name, value in context.values().items()}


def config_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the user's configuration file, which need not exist."""
    if environment.get(VARIABLE):
        return Path(environment[VARIABLE]).expanduser()
    base = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "evenhand" / "config.yaml"


def read_contexts() -> Contexts:
    """Return the content of the configuration file, or empty content if there is no file.

    Raises Fault, which names file and line, for a file that cannot be used.
    """
    file = config_file()
    if not file.exists():
        return Contexts(file)
    return _Reader(file).contexts(read_text(file, VARIABLE))


def context_names() -> list[str]:
    """Return the names of all contexts for the shell to complete; empty when the file cannot be read."""
    try:
        return sorted(read_contexts().known)
    except Fault:
        return []


def write_contexts(contexts: Contexts) -> None:
    """Replace the file with one that only its owner can read. Raises Fault if the file cannot be written."""
    import yaml  # noqa: PLC0415 - only these commands write YAML

    known = {name: one.values() for name, one in contexts.known.items()}
    value = {**({"current": contexts.current} if contexts.current else {}), "contexts": known}
    written = contexts.file.with_name(f"{contexts.file.name}.{os.getpid()}")
    try:
        contexts.file.parent.mkdir(parents=True, exist_ok=True)
        written.touch(mode=FILE_MODE)
        written.write_text(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), "utf-8")
        written.replace(contexts.file)
    except OSError as error:
        raise Fault(
            f"cannot write {contexts.file}: {(error.strerror or str(error)).lower()}",
            where=VARIABLE,
            advice="name a file that you may write",
        ) from error


def changed(contexts: Contexts, name: str, values: Mapping[str, str]) -> Contexts:
    """Return the contexts after setting fields of the context `name`; an empty value unsets a field.

    Raises Fault for a malformed name. A context that does not exist is added. If there is no current context, the
    changed context becomes the current context.
    """
    if not NAME.fullmatch(name):
        raise Fault(
            f"`{name}` is no name of a context",
            where="argument NAME",
            advice="write letters, digits, dots, hyphens and underscores, at most 63",
            code=ExitCode.USAGE,
        )
    before = contexts.known.get(name, Context())
    found = replace(before, **{FIELDS[key]: value for key, value in values.items()})
    known = {**contexts.known, name: found}
    return replace(contexts, known=known, current=contexts.current or name)


def is_readable_by_others(file: Path) -> bool:
    """Return whether users other than the owner may read the file."""
    return bool(file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


class _Reader:
    """A reader of the text of the configuration file.

    Each problem is raised as a fault with the line of the problem.
    """

    def __init__(self, file: Path) -> None:
        # These modules are loaded only when the user has a configuration file.
        from server.config.problems import Reporter  # noqa: PLC0415

        self._file = file
        self._reporter = Reporter(str(file))

    def contexts(self, text: str) -> Contexts:
        """Return the contexts. Raises Fault for the first problem."""
        from server.config import document  # noqa: PLC0415

        found = document.read(text, self._reporter) if text.strip() else document.Read({})
        self._raise_first()
        top = self._mapping((), found.value if found else {}, {"current", "contexts"})
        known = {
            name: self._context(("contexts", name), one)
            for name, one in self._mapping(("contexts",), top.get("contexts") or {}).items()
        }
        current = self._text(("current",), top.get("current") or "")
        self._raise_first()
        return Contexts(self._file, current, known)

    def _context(self, path: tuple[str | int, ...], value: object) -> Context:
        if not NAME.fullmatch(str(path[-1])):
            self._reporter.error(path, f"`{path[-1]}` is no name of a context")
        given = self._mapping(path, value, set(FIELDS))
        told = {name: self._field((*path, name), one) for name, one in given.items()}
        self._raise_first()
        return Context(**{FIELDS[name]: one for name, one in told.items()})

    def _field(self, path: tuple[str | int, ...], value: object) -> str:
        text = self._text(path, value)
        if text and path[-1] in FILE_FIELDS:
            return str(self._file.parent.absolute() / Path(text).expanduser())
        return text

    def _mapping(
        self, path: tuple[str | int, ...], value: object, allowed: set[str] | None = None
    ) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self._reporter.error(path, "it must be a mapping of names to values")
            self._raise_first()
            return {}
        known = set(value) if allowed is None else allowed
        for key in sorted(set(value) - known):
            near = near_matches(str(key), known) or f"there are {', '.join(sorted(known))}"
            self._reporter.error((*path, key), f"unknown key; {near}")
        return value

    def _text(self, path: tuple[str | int, ...], value: object) -> str:
        if isinstance(value, str):
            return str(value)
        self._reporter.error(path, "it must be a text")
        return ""

    def _raise_first(self) -> None:
        if not self._reporter.failed:
            return
        first = self._reporter.result()[0]
        raise Fault(
            ": ".join(filter(None, (first.path, first.message))),
            where=f"{first.file}:{first.line}",
            advice="correct it; the form is shown by evenhand context --help",
        )
