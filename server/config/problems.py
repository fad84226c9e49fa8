"""The problems of a configuration: errors and warnings, with file, line and path."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from server.config.codes import CODES

Path = tuple[str | int, ...]
Severity = Literal["error", "warning"]

PROBLEMS_MAX: Final = 500
"""The largest number of problems that are reported for one text. Further problems are only counted."""
COMPARISONS_MAX: Final = 5_000
"""The largest number of queue names that are compared in the search for similar names in one text.

Above this number no name is suggested.
"""
MESSAGE_MAX: Final = 600
"""The largest number of characters of one message, which is limited because a message may quote a long text."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. A text with an error is refused. For a warning, ``consequence`` says what will happen.

    ``line`` counts from 1. ``path`` is written like ``partitions[0].queues[0].resources.max.memory``.
    """

    severity: Severity
    file: str
    line: int
    path: str
    message: str
    consequence: str = ""
    code: str = ""
    """The stable code of a warning, from `codes.CODES`."""
    advice: str = ""
    """The advice on how to correct an error. The advice is empty if the message contains it."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else f"line {self.line}"
        subject = f"{self.path}: " if self.path else ""
        more = self.consequence or self.advice
        effect = f" ({more})" if more else ""
        code = f" [{self.code}]" if self.code else ""
        return f"{place}: {self.severity}: {subject}{self.message}{effect}{code}"


def path_text(path: Path) -> str:
    """Return a path as text: ``("queues", 0, "name")`` as ``queues[0].name``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _shortened(text: str) -> str:
    return text if len(text) <= MESSAGE_MAX else f"{text[: MESSAGE_MAX - 3]}..."


@dataclass(slots=True)
class Reporter:
    """The collector of the problems of one text, with the line of every path."""

    file: str = ""
    lines: Mapping[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    failed: bool = False
    unsaid: int = 0
    silent: dict[Path, frozenset[str]] = field(default_factory=dict)
    """The codes of warnings that a partition silences, by its path."""
    silenced: list[Problem] = field(default_factory=list)
    left_out: set[Path] = field(default_factory=set)
    """The paths of the values that are not checked further, because of faults."""
    incomplete: set[Path] = field(default_factory=set)
    """The mappings and lists from which a value was left out."""
    comparisons_left: int = COMPARISONS_MAX
    kept: Mapping[Path, tuple[int, ...]] = field(default_factory=dict)
    """The original indexes of the remaining entries, by the path of each list from which entries were left out."""

    def error(
        self, path: Path, message: str | Callable[[], str], line: int = 0, *, advice: str = ""
    ) -> None:
        """Report an error at this path, because of which the text is refused. ``advice`` says what to do.

        A message that is costly to make is given as a function. The function is called only for a problem that is listed.
        """
        self.failed = True
        if len(self.problems) >= PROBLEMS_MAX:
            self.unsaid += 1
            return
        message = message if isinstance(message, str) else message()
        where = _shortened(path_text(self.original(path)))
        told, line = _shortened(message), line or self.line(path)
        self._add(Problem("error", self.file, line, where, told, advice=advice))

    def warning(self, path: Path, code: str, message: str, consequence: str) -> None:
        """Report a warning on a text that is accepted.

        ``consequence`` names an effect of the text that its author perhaps does not expect.

        If the partition silences ``code``, the warning goes to ``silenced`` instead.
        """
        assert code in CODES
        where = _shortened(path_text(self.original(path)))
        told = _shortened(message)
        found = Problem("warning", self.file, self.line(path), where, told, consequence, code)
        if code in self.silent.get(path[:2], ()):
            self.silenced.append(found)
        else:
            self._add(found)

    def line(self, path: Path) -> int:
        """Return the line of a path.

        If the path is not in the text, return the line of the nearest enclosing section that is in the text.
        """
        path = self.original(path)
        for end in range(len(path), -1, -1):
            if (found := self.lines.get(path[:end])) is not None:
                return found
        return 1

    def original(self, path: Path) -> Path:
        """Return the path in the original text that corresponds to a path in the checked part (see `partial`)."""
        found: Path = ()
        for part in path:
            numbers = self.kept.get(found)
            found = (*found, numbers[part] if numbers and isinstance(part, int) else part)
        return found

    def lacks(self, path: Path) -> bool:
        """Return whether the mapping at this path has an entry that is not checked further, because it is faulty.

        Faulty entries of mappings inside this mapping do not count.
        """
        where = self.original(path)
        return where in self.incomplete

    def leave_out(self, paths: Iterable[Path]) -> None:
        """Record paths of the text that are not checked further."""
        for path in paths:
            self.left_out.add(path)
            self.incomplete.add(path[:-1])

    def may_compare(self, names: int) -> bool:
        """Return whether the limit still allows a search for a similar name among this many names.

        If the result is True, the names count towards `COMPARISONS_MAX`.
        """
        if names > self.comparisons_left:
            return False
        self.comparisons_left -= names
        return True

    def result(self) -> list[Problem]:
        """Return the stored problems in the order of their lines. Within a line, errors come first.

        If further problems were only counted, the last entry has their number.
        """
        ordered = sorted(self.problems, key=lambda problem: (problem.line, problem.severity))
        if self.unsaid:
            severity: Severity = "error" if self.failed else "warning"
            text = f"{self.unsaid} more problems are not listed"
            ordered.append(Problem(severity, self.file, ordered[-1].line, "", text))
        return ordered

    def _add(self, problem: Problem) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)
        else:
            self.unsaid += 1
