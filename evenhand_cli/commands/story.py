"""The command `evenhand story`.

The command runs the examples of a page, or the user's own stories, on a core in this process.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from evenhand_cli import completion, terminal
from evenhand_cli.combinations import refuse_together
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.files import FILE_BYTES_MAX, read_text
from evenhand_cli.near import near_matches
from evenhand_cli.output import Form, Output, console_for, no_names, write
from evenhand_cli.story import text
from evenhand_cli.story.answers import Answers
from evenhand_cli.story.form import Example
from evenhand_cli.story.play import Player
from evenhand_cli.story.reading import read_examples

WHERE = "argument FILE"
STANDARD_INPUT = Path("-")
LISTED_MAX = 12
"""Maximum number of stories that an error lists."""

StoryFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        allow_dash=True,
        help="A page in Markdown, stories in YAML, or the copied blocks of one example; - reads standard input.",
    ),
]
Only = Annotated[
    str,
    typer.Option(
        "--only",
        metavar="NAME|NUMBER",
        help="Run only the story with this number, or those whose title contains this text.",
        autocompletion=completion.stories,
    ),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain", help="Print the full explanation of each decision and of each ask that waits."
    ),
]
Brief = Annotated[
    bool,
    typer.Option("--brief", help="Print only what is decided, with the ids of the rules."),
]
Stepwise = Annotated[
    bool, typer.Option("--step", help="Wait for Enter after each step; needs a terminal.")
]


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts of each story that the user wants to see."""

    output: Form
    explain: bool
    brief: bool
    wait: bool
    titled: bool
    """Whether the title of the story is shown."""


def story(
    file: StoryFile,
    only: Only = "",
    explain: Explain = False,
    brief: Brief = False,
    step: Stepwise = False,
    output: Output = Form.TABLE,
) -> None:
    """Run the examples of a page step by step, with the reason of each decision.

    A story has a configuration and steps: what happens, and what is expected then. No core and no cluster are needed;
    time is simulated. docs/story.md says how stories are written. Exit code 1: an expectation does not hold.

    Examples:
        evenhand story docs/preemption.md
        evenhand story docs/preemption.md --only 1 --explain
        evenhand story - < example.yaml

    """
    if output is Form.NAME:
        raise no_names()
    if step:
        _check_step(file, output)
    if brief:
        refuse_together("--brief", explain=explain)
    examples = _chosen(read_examples(*_text(file)), only)
    shown = Shown(output, explain, brief, step, titled=len(examples) > 1 or not brief)
    players = [Player.of(one) for one in examples]
    told = [_run(one, shown, first=one is players[0]) for one in players]
    holds = [all(each.turn.holds for each in one) for one in told]
    if output.is_data:
        stories: list[dict[str, Any]] = [
            text.value(*each) for each in zip(examples, told, strict=True)
        ]
        write(output, {"file": str(file), "holds": all(holds), "stories": stories})
    elif len(examples) > 1:
        style = "good" if all(holds) else "bad"
        line = f"\n{sum(holds):,} of {len(holds):,} stories hold"
        console_for(output).print(Text(line, style=style))
    if not all(holds):
        raise typer.Exit(ExitCode.PROBLEM)


def _check_step(file: Path, output: Form) -> None:
    """Raise Fault if --step cannot be used: the output is data or is not a terminal, or Enter cannot be read."""
    if file == STANDARD_INPUT or output.is_data or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Fault(
            "--step needs a terminal for its input and its output",
            where="--step",
            advice="leave --step out, or name a FILE and print a table to a terminal",
            code=ExitCode.USAGE,
        )


def _text(file: Path) -> tuple[str, str]:
    """Return the text of the file and its name for errors. Raises Fault with exit code 2."""
    try:
        return (
            (_standard_input(), "standard input")
            if file == STANDARD_INPUT
            else (read_text(file, WHERE), str(file))
        )
    except Fault as fault:
        fault.code = ExitCode.USAGE
        raise


def _standard_input() -> str:
    if sys.stdin.isatty():
        terminal.say("paste the blocks of an example, then press Ctrl-D")
    content = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise Fault(f"the input is larger than {FILE_BYTES_MAX:,} bytes", where=WHERE)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Fault("the input is not UTF-8 text", where=f"standard input:{line}") from error


def _chosen(examples: list[Example], only: str) -> list[Example]:
    """Return the stories that --only names. Raises Fault when the file has no such story."""
    if not only:
        return examples
    wanted = only.strip().lower()
    found = [one for one in examples if str(one.number) == wanted]
    found = found or [one for one in examples if one.title.lower() == wanted]
    found = found or [one for one in examples if wanted and wanted in one.title.lower()]
    if found:
        return found
    listed = "\n".join(f"{one.number}  {one.title}" for one in examples[:LISTED_MAX])
    near = near_matches(only, [one.title for one in examples])
    raise Fault(
        f"no story `{only}` in {examples[0].source}",
        where="--only",
        advice=near or f"choose one of these {len(examples):,}:\n{listed}",
        code=ExitCode.USAGE,
    )


def _run(player: Player, shown: Shown, *, first: bool) -> Sequence[text.Told]:
    """Run a story and return its steps. Print the story, unless the output is data."""
    if shown.output.is_data:
        return _data(player)
    if not first:
        console_for(shown.output).print()
    return _print(player, shown)


def _data(player: Player) -> list[text.Told]:
    """Run a story, and return its steps."""
    answers = Answers.of(player)
    return [text.Told.of(turn, answers) for turn in player.turns()]


def _print(player: Player, shown: Shown) -> Sequence[text.Told]:
    """Run a story, print each step after it has run, and return the steps."""
    console = console_for(shown.output)
    answers, told = Answers.of(player), list[text.Told]()
    steps = text.Steps(text.label_width(player.example), shown.brief)
    if shown.titled:
        console.print(text.opening(player, console.width, brief=shown.brief))
    for turn in player.turns():
        told.append(text.Told.of(turn, answers))
        console.print(steps.step(told[-1], console.width))
        if shown.explain:
            found = answers.explain(told[-1].explained())
            console.print(text.details(found, steps.label, console.width))
        if shown.wait and len(told) < len(player.example.moments):
            _wait(console)
    console.print(text.verdict(told, console.width, brief=shown.brief))
    return told


def _wait(console: Console) -> None:
    """Wait for Enter; the end of the input ends the command."""
    try:
        console.input("[faint]Enter for the next step[/] ")
    except EOFError as error:
        raise typer.Exit(ExitCode.OK) from error
