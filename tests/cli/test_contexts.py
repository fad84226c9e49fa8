"""Contexts of the user's configuration file: precedence, errors with their lines, and the commands for contexts."""

import json
from pathlib import Path

import pytest

from evenhand.v1 import inspect_pb2
from evenhand_cli.connect import resolved
from evenhand_cli.contexts import Context, config_file
from tests.cli import samples
from tests.cli.fake import FakeCore, running
from tests.cli.run import Ended, evenhand

FILE = """\
current: production
contexts:
  production:
    core: core.example:50051
    tls-ca: ca.crt
    token-file: /etc/ada.token
  local: {core: "127.0.0.1:50051"}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(FILE)
    monkeypatch.setenv("EVENHAND_CONFIG", str(file))
    return file


def context(config: Path, *words: str) -> Ended:
    return evenhand("context", *words, EVENHAND_CONFIG=str(config))


def test_the_file_is_where_the_variables_say() -> None:
    assert config_file({"EVENHAND_CONFIG": "/a/b"}) == Path("/a/b")
    assert config_file({"XDG_CONFIG_HOME": "/c"}) == Path("/c/evenhand/config.yaml")
    assert config_file({}) == Path("~/.config/evenhand/config.yaml").expanduser()


def test_the_current_context_counts_where_nothing_is_given(config: Path) -> None:
    found = resolved(Context(), "")
    assert found.core == "core.example:50051"
    assert found.tls_ca == str(config.parent / "ca.crt")
    assert found.token_file == "/etc/ada.token"  # noqa: S105 - a file


def test_what_is_given_wins_field_by_field(config: Path) -> None:
    given = Context(core="core.example:50051", token_file="/mine")  # noqa: S106 - a file
    found = resolved(given, "")
    assert (found.token_file, found.tls_ca) == ("/mine", str(config.parent / "ca.crt"))


def test_a_token_goes_to_the_core_of_its_context_alone(config: Path) -> None:
    assert resolved(Context(core="other:1"), "") == Context(core="other:1")
    chosen = resolved(Context(core="other:1"), "production")
    assert chosen.token_file == "/etc/ada.token"  # noqa: S105 - a file
    assert config.exists()


def test_another_context_is_named(config: Path) -> None:
    assert resolved(Context(), "local") == Context(core="127.0.0.1:50051")
    ended = evenhand("nodes", "--context", "locl", EVENHAND_CONFIG=str(config))
    assert (ended.code, ended.out) == (1, "")
    assert "did you mean `local`" in ended.err


def test_without_a_file_the_core_of_this_machine_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENHAND_CONFIG", "/nowhere/config.yaml")
    assert resolved(Context(), "") == Context(core="127.0.0.1:50051")


def test_a_context_leads_to_its_core_from_option_or_variable(tmp_path: Path) -> None:
    file = tmp_path / "new" / "config.yaml"
    nodes = inspect_pb2.ListNodesResponse(nodes=[samples.node()])
    with running(FakeCore(ListNodes=nodes)) as core:
        assert context(file, "set", "fake", "--core", core.address).code == 0
        assert context(file, "set", "away", "--core", "127.0.0.1:1").code == 0
        place = str(file)
        assert evenhand("nodes", "-o", "name", EVENHAND_CONFIG=place).out == "node-a\n"
        assert evenhand("nodes", "--context", "away", EVENHAND_CONFIG=place).code == 3
        away = {"EVENHAND_CONFIG": place, "EVENHAND_CONTEXT": "away"}
        assert evenhand("nodes", width=140, **away).code == 3
        assert evenhand("nodes", width=140, EVENHAND_CORE=core.address, **away).code == 0
        assert evenhand("--context", "fake", "nodes", width=140, **away).code == 0


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("contexts: [a]\n", 1, "it must be a mapping"),
        ("contexts:\n  a:\n    cor: x:1\n", 3, "did you mean `core`"),
        ("contexts: {}\ncurent: a\n", 2, "did you mean `current`"),
        ("contexts:\n  a:\n    core: [1]\n", 3, "it must be a text"),
        ("contexts:\n  a: {}\n  a: {}\n", 3, "a"),
        ("contexts:\n\ta: 1\n", 2, ""),
        ("contexts:\n  'a b': {}\n", 2, "is no name of a context"),
    ],
)
def test_a_malformed_file_is_told_with_its_line(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    ended = evenhand("nodes", EVENHAND_CONFIG=str(file))
    assert (ended.code, ended.out) == (1, "")
    assert f"config.yaml:{line}" in ended.err
    assert words in ended.err


def test_a_current_context_that_is_gone_is_told(config: Path) -> None:
    config.write_text("current: gone\ncontexts: {}\n")
    ended = evenhand("nodes", EVENHAND_CONFIG=str(config))
    assert (ended.code, ended.out) == (1, "")
    assert "there is no context `gone`" in ended.err


def test_contexts_are_listed_shown_used_and_deleted(config: Path) -> None:
    listed = context(config, "list")
    assert listed.words("production")[:4] == ["*", "production", "core.example:50051", "yes"]
    assert context(config, "list", "-o", "name").out.split() == ["production", "local"]
    assert context(config, "show").words("core ")[-1] == "core.example:50051"
    shown = json.loads(context(config, "show", "local", "-o", "json").out)
    assert (shown["core"], shown["current"]) == ("127.0.0.1:50051", False)
    assert context(config, "use", "local").code == 0
    assert context(config, "list").words("local")[0] == "*"
    assert context(config, "delete", "local").code == 0
    assert context(config, "list", "-o", "name").out.split() == ["production"]
    assert context(config, "show").code == 1
    assert context(config, "use", "local").code == 1


def test_fields_are_set_and_unset(config: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o644)
    ended = context(config, "set", "local", "--token-file", str(token))
    assert ended.code == 0
    assert f"chmod 600 {token}" in ended.err
    assert config.stat().st_mode & 0o077 == 0
    assert context(config, "show", "local", "-o", "json").value()["token-file"] == str(token)
    assert context(config, "set", "local", "--token-file", "").code == 0
    assert context(config, "show", "local", "-o", "json").value()["token-file"] == ""


@pytest.mark.parametrize(
    "words",
    [
        ("set", "a b", "--core", "x:1"),
        ("set", "a", "--core", "nonsense"),
        ("set", "a", "--core", "nonsense,x:1"),
        ("set", "a", "--tls-cert", "c.crt"),
    ],
)
def test_a_context_that_cannot_be_is_refused(config: Path, words: tuple[str, ...]) -> None:
    ended = context(config, *words)
    assert (ended.code, ended.out) == (2, "")
    assert config.read_text() == FILE
