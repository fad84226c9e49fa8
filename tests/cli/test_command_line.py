"""The parsing of the command line: options before the command, versions, help, and errors that name no library."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from evenhand.v1 import inspect_pb2
from evenhand_cli.app import COMMANDS, app
from evenhand_cli.command_line import split
from tests.cli import samples
from tests.cli.fake import FakeCore, running
from tests.cli.processes import ROOT, environment
from tests.cli.run import evenhand

WIDTH = 80


@pytest.fixture(scope="module")
def core() -> Iterator[FakeCore]:
    nodes = inspect_pb2.ListNodesResponse(nodes=[samples.node()])
    with running(FakeCore(ListNodes=nodes)) as started:
        yield started


@pytest.mark.parametrize(
    ("args", "leading", "own", "rest"),
    [
        (["queues"], [], [], ["queues"]),
        (["--core", "h:1", "queues", "-w"], ["--core", "h:1"], [], ["queues", "-w"]),
        (["--core=h:1", "-o", "json", "nodes"], ["--core=h:1", "-o", "json"], [], ["nodes"]),
        (["-ojson", "nodes"], ["-ojson"], [], ["nodes"]),
        (["--version"], [], ["--version"], []),
        (["-h", "--core"], ["--core"], ["-h"], []),
    ],
)
def test_shared_options_before_the_command_are_left_to_it(
    args: list[str], leading: list[str], own: list[str], rest: list[str]
) -> None:
    assert split(args) == (leading, own, rest)


def test_options_stand_before_or_after_the_command(core: FakeCore) -> None:
    after = evenhand("nodes", "--core", core.address, "-o", "name")
    assert evenhand("--core", core.address, "-o", "name", "nodes").out == after.out == "node-a\n"
    assert evenhand("-o", "name", f"--core={core.address}", "nodes").out == after.out
    last = evenhand("-o", "json", "--core", core.address, "nodes", "-o", "name")
    assert last.out == after.out


def test_options_stand_before_a_group_or_inside_it() -> None:
    for words in (("--core", "x", "config", "show"), ("config", "--core", "x", "show")):
        ended = evenhand(*words)
        assert ended.code == 2
        assert "`x` is not an address" in ended.err


def test_an_option_before_a_command_that_has_none_is_refused() -> None:
    ended = evenhand("--core", "h:1", "log", "verify", "x")
    assert (ended.code, ended.out) == (2, "")
    assert "No such option: --core" in ended.err
    assert "evenhand log verify" in ended.err


def test_the_version_needs_no_core() -> None:
    ended = evenhand("--version")
    assert ended.code == 0
    assert ended.out.startswith("evenhand 0.")


@pytest.mark.parametrize("words", [("queues",), ("config", "apply"), ("simulate", "ask"), ()])
def test_help_of_a_command_is_the_same_both_ways(words: tuple[str, ...]) -> None:
    ended = evenhand("help", *words, width=WIDTH)
    assert ended.code == 0
    assert ended.out == evenhand(*words, "--help", width=WIDTH).out


def test_help_of_an_unknown_command_names_the_nearest() -> None:
    ended = evenhand("help", "quues")
    assert (ended.code, ended.out) == (2, "")
    assert "did you mean `queues`" in ended.err


def test_connection_options_are_folded_and_shown_in_full_on_demand() -> None:
    folded = evenhand("nodes", "--help", width=WIDTH).out
    assert "Address of the core" not in folded
    assert "--core --" in folded
    assert "Address of the core" in evenhand("help", "connection", width=WIDTH).out


def leaves(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command without commands below it, with its words."""
    if not hasattr(command, "list_commands"):
        yield path.strip(), command
        return
    context = command.context_class(command)
    for name in command.list_commands(context):
        yield from leaves(command.get_command(context, name), f"{path} {name}")


LEAVES = dict(leaves(get_command(app)))


@pytest.mark.parametrize("path", dict.fromkeys([*COMMANDS, *LEAVES]))
def test_help_fits_in_80_columns_and_shows_no_types_of_a_language(path: str) -> None:
    text = evenhand(*path.split(), "--help", width=WIDTH).out
    assert [line for line in text.splitlines() if len(line) > WIDTH] == []
    assert not {"<bool>", "<str>", "<int>"}.intersection(text.split())
    assert "{" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nodes", "-o", "xml"), "'xml' is not one of 'table', 'wide', 'json', 'yaml', 'name'"),
        (("nodes", "--timeout", "soon"), "it must be a number"),
        (("nodes", "--timeout", "0"), "it must be greater than or equal to 0.1"),
        (("decisions", "--count", "some"), "it must be a whole number"),
        (("explain",), "Missing argument 'KEY'"),
        (("decisions", "-n", "5"), "write --node or --count in full"),
        (("quues",), "Did you mean 'queues'"),
    ],
)
def test_a_wrong_command_line_is_told_in_plain_words(
    arguments: tuple[str, ...], words: str
) -> None:
    ended = evenhand(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert "Value error" not in ended.err
    assert "--help" in ended.err


@pytest.mark.parametrize("path", LEAVES)
def test_the_help_of_every_command_has_examples_of_that_command(path: str) -> None:
    text = evenhand(*path.split(), "--help", width=WIDTH).out
    _, _, after = text.partition("\nExamples:\n")
    examples = [line.strip() for line in after.partition("\n\n")[0].splitlines()]
    assert examples, path
    known = {name for one in LEAVES[path].params for name in one.opts}
    for example in examples:
        _, found, words = example.rpartition(f"evenhand {path}")
        assert found, f"{example!r} is no example of {path}"
        given = [word.partition("=")[0] for word in shlex.split(words)]
        assert {word for word in given if re.fullmatch(r"--[a-z-]+|-[a-z]", word)} <= known, example


SHORT = {"-n": {"--namespace"}, "-o": {"--output"}, "-p": {"--partition"}, "-w": {"--watch"}}


def test_a_short_option_means_the_same_in_every_command() -> None:
    meant: dict[str, set[str]] = {}
    for path, command in leaves(get_command(app)):
        if path != "events":
            for option in command.params:
                long = max(option.opts, key=len)
                for short in option.opts:
                    if len(short) == 2 and short.startswith("-"):
                        meant.setdefault(short, set()).add(long)
    assert {short: names for short, names in meant.items() if len(names) > 1} == {}
    assert {short: names for short, names in meant.items() if short in SHORT} == SHORT


def test_questions_to_one_core_load_no_reader_of_yaml() -> None:
    """Loading one takes as long as a whole query, also for each completion in a shell."""
    program = (
        "import sys; from evenhand_cli.commands import decisions, explain, listings, queues; "
        "print(sorted({'pydantic', 'yaml'} & sys.modules.keys()))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "[]\n", told.stderr
