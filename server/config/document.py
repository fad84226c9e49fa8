"""The reader of YAML text, which returns plain values with the line of each value. A text that exceeds one of the limits is refused.

Scalars stay as they were written (`Written`). Thus the check of a field sees texts such as ``1_000``, ``0x10`` or ``1e3``, and
nothing converts them silently. Only null and the truth values of YAML 1.1 (`true`, `false`, `yes`, `no`, `on`, `off`) are
converted. Anchors, aliases and merge keys are supported.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import yaml

from server.config.problems import Path, Reporter

TEXT_MAX: Final = 4 << 20
"""The largest number of characters of one text. For comparison, a ConfigMap holds 1 MiB, and a gRPC message 4 MiB."""
DEPTH_MAX: Final = 100
"""The largest depth of nested mappings and lists. A queue with its list of queues takes two levels."""
VALUES_MAX: Final = 300_000
"""The largest number of keys and values of one text. The keys and values of an alias count each time that the alias is used."""

_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = frozenset(
    {f"{_TAG}{kind}" for kind in ("str", "int", "float", "timestamp", "value")}
)
_BOOLEANS: Final = yaml.SafeLoader.bool_values
_LOADER: Final = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class Written(str):
    """A scalar as it was written. ``number`` says that YAML would read the scalar as a number."""

    __slots__ = ("number",)
    number: bool


class _LimitError(Exception):
    """The error of a text that exceeds a limit."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class Read(NamedTuple):
    """The value of a text, and the paths of the parts that cannot be used."""

    value: object
    unusable: frozenset[Path] = frozenset()


def read(text: str, reporter: Reporter) -> Read | None:
    """Return the value of a text, and record the lines of its values in the reporter.

    If the text is empty, is not valid YAML or exceeds a limit, report an error and return None.

    If a key is written twice, its first value is used. The reporter gets an error, and the path of the value that was left out.
    """
    if len(text) > TEXT_MAX:
        reporter.error((), f"the text has {len(text)} characters, allowed are {TEXT_MAX}", 1)
        return None
    try:
        _check_depth(text)
        node = yaml.compose(text, Loader=_LOADER)
        if node is None:
            reporter.error((), "the text is empty: it needs a list of `partitions`", 1)
            return None
        builder = _Builder(reporter)
        value = builder.value(node, ())
    except _LimitError as refusal:
        reporter.error((), str(refusal), refusal.line)
        return None
    except (yaml.YAMLError, ValueError, OverflowError) as fault:
        _report_fault(fault, text, reporter)
        return None
    reporter.lines = builder.lines
    for path, line, message in builder.flaws:
        reporter.error(path, message, line)
    reporter.leave_out(builder.left_out)
    return Read(value, frozenset(builder.unusable))


def _check_depth(text: str) -> None:
    """Check the depth of a text by its parse events. The check comes before nodes are made, because making nodes is recursive."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise _LimitError(_line(event), f"nested deeper than {DEPTH_MAX} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _report_fault(fault: Exception, text: str, reporter: Reporter) -> None:
    """Report PyYAML's message, with the line at which it stopped."""
    line, message = 1, str(fault)
    if isinstance(fault, yaml.MarkedYAMLError):
        mark = fault.problem_mark or fault.context_mark
        line = mark.line + 1 if mark else 1
        message = ", ".join(part for part in (fault.context, fault.problem) if part)
        if "found a tab" in message or ("start any token" in message and _has_tab(text, line)):
            message = "a tab; YAML indents with spaces"
        if "alias" in message:
            message += "; a `*` that is no alias needs quotes"
    elif isinstance(fault, yaml.reader.ReaderError):
        line = text.count("\n", 0, fault.position) + 1
        message = f"a character that YAML does not allow: {fault.reason}"
    reporter.error((), f"not valid YAML: {message}", line)


def _has_tab(text: str, line: int) -> bool:
    """Return whether the line begins with a tab, perhaps after spaces."""
    lines = text.splitlines()
    return line <= len(lines) and lines[line - 1].lstrip(" ").startswith("\t")


def _line(item: yaml.Event | yaml.Node) -> int:
    return item.start_mark.line + 1 if item.start_mark else 1


@dataclass(slots=True)
class _Builder:
    """The builder that turns YAML nodes into values, and counts the keys and values."""

    reporter: Reporter
    lines: dict[Path, int] = field(default_factory=lambda: {(): 1})
    flaws: list[tuple[Path, int, str]] = field(default_factory=list)
    left_out: set[Path] = field(default_factory=set)
    unusable: set[Path] = field(default_factory=set)
    left: int = VALUES_MAX
    depth: int = 0

    def value(self, node: yaml.Node, path: Path) -> object:
        """Return the value of a node. An alias that contains itself is refused at the depth limit."""
        self.left -= 1
        if self.left < 0:
            raise _LimitError(_line(node), f"more than {VALUES_MAX} values, aliases counted")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise _LimitError(_line(node), f"nested deeper than {DEPTH_MAX} levels through aliases")
        value = (
            self._list(node, path)
            if isinstance(node, yaml.SequenceNode)
            else self._mapping(node, path)
        )
        self.depth -= 1
        return value

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> object:
        if node.tag == f"{_TAG}null":
            return None
        if node.tag == f"{_TAG}bool":
            return _BOOLEANS.get(node.value.lower())
        if node.tag not in _SCALARS:
            self._flaw_of_tag(node, path)
        written = Written(node.value)
        written.number = node.tag in (f"{_TAG}int", f"{_TAG}float")
        return written

    def _list(self, node: yaml.Node, path: Path) -> list[object]:
        if node.tag != f"{_TAG}seq":
            self._flaw_of_tag(node, path)
        values = []
        for number, item in enumerate(node.value):
            self.lines[*path, number] = _line(item)
            values.append(self.value(item, (*path, number)))
        return values

    def _mapping(self, node: yaml.Node, path: Path) -> dict[str, object]:
        if node.tag != f"{_TAG}map":
            self._flaw_of_tag(node, path)
        merged: dict[str, object] = {}
        merges = [(key, value) for key, value in node.value if key.tag == f"{_TAG}merge"]
        for number, (key, value) in enumerate(merges):
            if number:
                self._flaw(key, path, "`<<` is written twice; give it a list of mappings", "<<")
            merged = self._merge(value, path)
        return {**merged, **self._own(node, path)}

    def _own(self, node: yaml.Node, path: Path) -> dict[str, object]:
        own: dict[str, object] = {}
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                continue
            if not isinstance(key, yaml.ScalarNode):
                self._flaw(key, path, "a key must be plain text", "?")
            elif key.value in own:
                first = self.lines[*path, key.value]
                message = f"the key {key.value!r} is written twice, first in line {first}"
                self._flaw(key, path, message, key.value)
            else:
                self.lines[*path, key.value] = _line(key)
                own[key.value] = self.value(value, (*path, key.value))
        return own

    def _merge(self, node: yaml.Node, path: Path) -> dict[str, object]:
        """Return the keys and values that `<<` adds to a mapping.

        If several merged mappings have the same key, the value in the first mapping is used.
        """
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, object] = {}
        for part in parts:
            value = self.value(part, path)
            if isinstance(value, dict):
                for key, inner in value.items():
                    merged.setdefault(key, inner)
            else:
                self._flaw(part, path, "`<<` needs a mapping or a list of mappings", "<<")
        return merged

    def _flaw(self, node: yaml.Node, path: Path, message: str, key: str) -> None:
        """Report a fault of a key of a mapping, and record that the key's value is left out."""
        named = (*path, key) if (*path, key) in self.lines else path
        self.flaws.append((named, _line(node), message))
        self.left_out.add((*path, key))

    def _flaw_of_tag(self, node: yaml.Node, path: Path) -> None:
        self.flaws.append((path, _line(node), f"the tag {node.tag!r} is not supported"))
        self.unusable.add(path)
