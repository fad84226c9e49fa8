"""The stories of a file.

The file is a Markdown page, a list of stories in YAML, or the blocks of one example, one after another. A page has an
example for each block `yaml queues`. Blocks `yaml queues applied` and `yaml story` belong to the example of the last
block `yaml queues` before them. A file with the blocks of one example is a copy of these blocks from a page. Such a
file begins with a configuration and steps; further configurations and steps may follow.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.near import near_matches
from evenhand_cli.story.form import Example, Moment, Step, Story, Text, configuration_text
from evenhand_cli.story.lines import ON_DEMAND
from evenhand_cli.story.words import QUOTED_MAX, quoted
from server.config import document
from server.config.problems import Path, Reporter, path_text

QUEUES: Final = "yaml queues"
APPLIED: Final = "yaml queues applied"
STEPS: Final = "yaml story"
KINDS: Final = (QUEUES, APPLIED, STEPS)
"""The words after the three backquotes by which a block of a page is recognised as part of an example."""
OF_PAGES: Final = ("decisions", "notes")
"""The kinds of decisions that the steps of a page list in addition to the kinds that all stories list."""
LIKELY_MISSPELT: Final = 0.8
"""The similarity above which the words of a block count as a misspelt form of `KINDS`."""
PAGE: Final = ".md"
"""The ending of a page. A page without blocks is read as YAML only if a line looks like a line of a story."""
STEPS_MAX: Final = 10_000
"""Maximum number of steps in a file."""
ADVICE: Final = (
    "name a page with blocks `yaml queues` and `yaml story`, a list of stories, or paste the blocks of one example:"
    " `evenhand help story` says more"
)
_PART: Final = re.compile(r"partitions:|- (?:at|do|then):")
"""The beginning of a configuration, or of the steps of a page."""
_BEGUN: Final = re.compile(rf"(?:{_PART.pattern})|(?:- )?(?:title|steps):")
_HEADING: Final = re.compile(r"#+ +(.+)")
_TITLED: Final = {"title", "steps"}

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page: the words after its backquotes, its content, where the content begins and ends, and its first line.

    A block that is not `closed` is the last one of its page.
    """

    info: str
    text: str
    start: int
    end: int
    line: int
    closed: bool = True


@dataclass(slots=True)
class _Draft:
    """An example whose steps are still being read."""

    title: str
    line: int
    configuration: Text
    also: tuple[str, ...]
    moments: list[Moment] = field(default_factory=list)
    applied: Text | None = None

    def add(self, moments: Iterable[Moment]) -> None:
        """Add steps. The first of the added steps applies the configuration that was read before it."""
        for moment in moments:
            self.moments.append(replace(moment, applied=self.applied))
            self.applied = None


def read_examples(text: str, source: str) -> list[Example]:
    """Return the stories of a file in order. `source` names the file in errors. Raises Fault, with the line of the error."""
    text = text.replace("\r\n", "\n")
    found = list(blocks(text))
    if not found and source.endswith(PAGE) and not any(map(_BEGUN.match, text.split("\n"))):
        raise _fault("no story in this file", source, 1, ADVICE)
    read = _of_page(text, found, source) if found else _of_yaml(text, source)
    examples = [one for one in read if one.moments]
    if not examples:
        raise _fault("no story in this file", source, 1, ADVICE)
    if sum(len(one.moments) for one in examples) > STEPS_MAX:
        raise _fault(f"more than {STEPS_MAX:,} steps", source, 1, "divide the file")
    return examples


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    place, info, start, first = 0, None, 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        bare, end = line.rstrip(), place + len(line) + 1
        if info is None and line.startswith("```") and "`" not in bare[3:]:
            info, start, first = bare[3:].strip(), end, number + 1
        elif info is not None and bare == "```":
            yield Block(info, text[start:place], start, place, first)
            info = None
        place = end
    if info is not None:
        yield Block(info, text[start:], start, len(text), first, closed=False)


def _of_page(text: str, found: Iterable[Block], source: str) -> list[Example]:
    headings = [
        (number, match[1].strip())
        for number, line in enumerate(text.split("\n"), 1)
        if (match := _HEADING.fullmatch(line))
    ]
    drafts: list[_Draft] = []
    for block in found:
        _check_block(block, source)
        written = Text(block.text, block.line)
        if block.info == QUEUES:
            title = _title(headings, block.line) or source
            drafts.append(_Draft(title, block.line, written, OF_PAGES))
        elif block.info in KINDS and not drafts:
            advice = f"begin the example with a block `{QUEUES}`"
            raise _fault(
                f"a block `{block.info}` before any configuration", source, block.line, advice
            )
        elif block.info == APPLIED:
            drafts[-1].applied = written
        elif block.info == STEPS:
            drafts[-1].add(_steps(_Read.of(written, source)))
    return _examples(drafts, source)


def _check_block(block: Block, source: str) -> None:
    """Raise Fault for a block that would be ignored by mistake, because the block is not closed or its words are misspelt."""
    if block.info in KINDS:
        if not block.closed:
            what = f"a block `{block.info}` that is not closed"
            raise _fault(what, source, block.line - 1, "end it with a line of three backquotes")
        return
    near = difflib.get_close_matches(block.info[:QUOTED_MAX], KINDS, 1, LIKELY_MISSPELT)
    if near and not block.info.startswith(tuple(f"{kind} " for kind in KINDS)):
        what = f"a block of the unknown kind `{quoted(block.info)}`"
        raise _fault(what, source, block.line - 1, f"did you mean `{near[0]}`?")


def _title(headings: Sequence[tuple[int, str]], line: int) -> str:
    """Return the last heading before a line."""
    before = [title for number, title in headings if number < line]
    return before[-1] if before else ""


def _of_yaml(text: str, source: str) -> list[Example]:
    """Return the stories of a list, or the one story of pasted blocks."""
    drafts: list[_Draft] = []
    for part in _parts(text):
        read = _Read.of(part, source)
        value = read.value
        if isinstance(value, dict) and "partitions" in value:
            if drafts:
                drafts[-1].applied = part
            else:
                drafts.append(_Draft(source, part.line, part, OF_PAGES))
        elif isinstance(value, list) and not any(map(_is_story, value)):
            if not drafts:
                advice = "paste the configuration of the example, too: it begins with `partitions:`"
                raise read.fault("steps before any configuration", (), advice)
            drafts[-1].add(_steps(read))
        elif drafts:
            raise read.fault("a list of stories after pasted blocks", (), "use two files")
        else:
            return _stories(read)
    return _examples(drafts, source)


def _is_story(value: object) -> bool:
    return isinstance(value, dict) and not _TITLED.isdisjoint(value)


def _parts(text: str) -> Iterator[Text]:
    """Yield the parts of a text: its YAML documents, and pasted blocks that follow one another without a separator."""
    lines: list[str] = []
    first, begun = 1, ""
    for number, line in enumerate(text.split("\n"), 1):
        found = _PART.match(line)
        begins = found is not None and found[0][0] != begun
        if begins or line.rstrip() == "---":
            if any(map(_has_content, lines)):
                yield Text("\n".join(lines), first)
                lines, first = [], number
            begun = found[0][0] if found else ""
        lines.append(line if line.rstrip() != "---" else "")
    if any(map(_has_content, lines)):
        yield Text("\n".join(lines), first)


def _has_content(line: str) -> bool:
    bare = line.strip()
    return bool(bare) and not bare.startswith("#")


def _examples(drafts: Iterable[_Draft], source: str) -> list[Example]:
    return [
        Example(
            source,
            number,
            one.title,
            one.line,
            one.configuration,
            tuple(one.moments),
            also=one.also,
        )
        for number, one in enumerate(drafts, 1)
    ]


@dataclass(frozen=True, slots=True)
class _Read:
    """The value that a YAML text describes, and the line on which each part of the value begins."""

    value: object
    reporter: Reporter
    source: str
    offset: int

    @classmethod
    def of(cls, text: Text, source: str) -> "_Read":
        """Read a text. Raises Fault if the text is no YAML, repeats a key, or exceeds a limit such as that of its length."""
        reporter = Reporter(source)
        found = document.read(text.text, reporter) if _has_value(text.text) else document.Read([])
        if reporter.failed or found is None:
            problem = reporter.result()[0]
            subject = f"{problem.path}: " if problem.path else ""
            line = problem.line + text.line - 1
            raise _fault(f"{subject}{problem.message}", source, line, "correct that line")
        return cls(found.value, reporter, source, text.line - 1)

    def line(self, path: Path) -> int:
        """Return the line of the file at which the part of the value at a path begins."""
        return self.reporter.line(path) + self.offset

    def fault(self, what: str, path: Path, advice: str = "") -> Fault:
        """Return a fault that names the line at which the part of the value at a path begins."""
        return _fault(what, self.source, self.line(path), advice)


def _has_value(text: str) -> bool:
    return any(map(_has_content, text.split("\n")))


def _stories(read: _Read) -> list[Example]:
    """Return the stories of a list, or one story."""
    value, many = read.value, isinstance(read.value, list)
    if not many and not _is_story(value):
        raise read.fault("no story in this file", (), ADVICE)
    each: list[tuple[Path, object]] = (
        [((number,), one) for number, one in enumerate(value)]
        if isinstance(value, list)
        else [((), value)]
    )
    return [_story(read, path, one, number) for number, (path, one) in enumerate(each, 1)]


def _story(read: _Read, path: Path, value: object, number: int) -> Example:
    story = _validated(Story, read, path, value)
    for place, word in enumerate(story.also):
        if word not in ON_DEMAND:
            advice = near_matches(word, ON_DEMAND) or f"known are {', '.join(ON_DEMAND)}"
            raise read.fault(
                f"unknown kind `{quoted(word)}` of decisions", (*path, "also", place), advice
            )
    line = read.line(path)
    moments = []
    for place, step in enumerate(story.steps):
        where = (*path, "steps", place)
        applied = None
        if step.queues is not None:
            made = configuration_text(story, step.queues, step.partition)
            applied = Text(made, read.line((*where, "queues")), made=True)
        moments.append(_moment(read, where, step, applied))
    return Example(
        read.source,
        number,
        story.title,
        line,
        Text(configuration_text(story), line, made=True),
        tuple(moments),
        story.rule,
        tuple(story.also),
        story.register_first,
    )


def _steps(read: _Read) -> Iterator[Moment]:
    """Yield the steps of a page, each a mapping in a list."""
    if not isinstance(read.value, list):
        raise read.fault("the steps are no list", (), "begin each step with `- at:`")
    for number, value in enumerate(read.value):
        step = _validated(Step, read, (number,), value)
        if step.queues is not None or step.partition is not None:
            advice = f"write the configuration in a block `{APPLIED}`"
            raise read.fault("a configuration in a step of a page", (number,), advice)
        yield _moment(read, (number,), step, None)


def _moment(read: _Read, path: Path, step: Step, applied: Text | None) -> Moment:
    lines = tuple(read.line((*path, "do", number)) for number in range(len(step.do)))
    return Moment(step, read.line(path), lines, applied)


def _validated(model: type[_Model], read: _Read, path: Path, value: object) -> _Model:
    """Return the value as an object of the given pydantic model. Raises Fault for the first part that has another form."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first: dict[str, Any] = dict(error.errors(include_url=False)[0])
    where = (*path, *(part for part in first["loc"] if isinstance(part, str | int)))
    key, owner = where[-1] if where else "", Step if "steps" in where[:-1] else model
    if first["type"] == "extra_forbidden":
        known = (
            near_matches(str(key), owner.model_fields)
            or f"known are {', '.join(owner.model_fields)}"
        )
        raise read.fault(f"unknown key `{quoted(str(key))}`", where, known)
    if first["type"] == "missing":
        raise read.fault(f"the key `{key}` is missing", where[:-1], "add it")
    what = f"{quoted(path_text(where))}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    raise read.fault(what, where, "correct that line")


def _fault(what: str, source: str, line: int, advice: str = "") -> Fault:
    return Fault(what, where=f"{source}:{line}", advice=advice, code=ExitCode.USAGE)
