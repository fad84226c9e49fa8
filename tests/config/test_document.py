"""YAML itself: syntax, duplicate keys, aliases and merges, and the limits on the size of a text."""

import pytest
import yaml

from server.config import document
from server.config.problems import Reporter
from tests.config.texts import accepted, assert_problem, cases, marked_line, problems, queue, tops

FAULTS = cases(
    ("not closed", "partitions: [  # <-\n", 2, "not valid YAML"),
    ("tab as indent", "partitions:\n\t- name: a\n", 2, "not valid YAML"),
    ("star without quotes", "partitions:\n  - submitacl: *\n", 2, "needs quotes"),
    ("two documents", "a: 1\n---\nb: 2\n", 2, "not valid YAML"),
    ("control character", "a: 1\nb: \x07\n", 2, "not valid YAML"),
    ("lone surrogate", "a: \ud800", 1, "not valid YAML"),
    ("escape beyond Unicode", 'a: 1\nb: "\\UFFFFFFFF"', 2, "not valid YAML"),
    ("empty", "", 1, "the text is empty"),
    ("only a comment", "# nothing\n", 1, "the text is empty"),
)
SHAPES = cases(
    ("null", "~", "has no value"),
    ("a list", "- 1", "must be a mapping"),
    ("text", "hello", "must be a mapping"),
    ("no partition", "partitions: []", "needs at least one entry"),
    ("nothing in it", "{}", "is missing"),
)


@pytest.mark.parametrize(("text", "line", "words"), FAULTS)
def test_broken_yaml_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    (problem,) = problems(text)
    assert (problem.severity, problem.line) == ("error", line)
    assert words in problem.message


@pytest.mark.parametrize(("text", "words"), SHAPES)
def test_what_is_no_configuration_is_refused(text: str, words: str) -> None:
    (problem,) = problems(text)
    assert (problem.severity, problem.line) == ("error", 1)
    assert words in problem.message


def test_a_key_written_twice_is_refused_where_it_comes_again() -> None:
    text = tops(
        """
        - name: a
          resources:
            max: {memory: 1}
            max: {memory: 2}  # <-
        """
    )
    assert_problem(text, "error", "queues[0].resources.max", "is written twice, first in line 6")


@pytest.mark.parametrize("text", ["{a: 1, a: 2}", "[{b: 1}, {a: 1, 'a': 2}]", "a: 1\n? a\n: 2"])
def test_a_key_written_twice_is_found_in_every_spelling(text: str) -> None:
    assert any("written twice" in problem.message for problem in problems(text))


def test_a_key_that_is_no_text_is_refused() -> None:
    assert "a key must be plain text" in problems("? [a]\n: 1")[0].message


@pytest.mark.parametrize(
    "text", ["a: !!python/object:os.system x", "a: !!set {b}", "a: !own [1]", "a: !!binary eA=="]
)
def test_foreign_tags_are_refused(text: str) -> None:
    assert "is not supported" in problems(text)[0].message


def test_anchors_and_merges_work_and_the_own_key_wins() -> None:
    text = tops(
        """
        - name: a
          submitacl: "*"
          resources: &same
            max: {memory: 2, vcore: 1}
            guaranteed: {memory: 1}
        - name: b
          submitacl: "*"
          resources:
            guaranteed: {vcore: 1}
            <<: *same
        - name: c
          submitacl: "*"
          resources: {<<: [{max: {memory: 5}}, *same]}
        """
    )
    assert queue(text, "root.b").guaranteed == (("vcore", 1000),)
    assert queue(text, "root.b").max == (("memory", 2), ("vcore", 1000))
    assert queue(text, "root.c").max == (("memory", 5),)


def test_a_merge_of_what_is_no_mapping_is_refused() -> None:
    assert "`<<` needs a mapping" in problems("a: {<<: 5}")[0].message


def test_a_second_merge_is_refused() -> None:
    found = problems("a: &a {b: 1}\nc:\n  <<: *a\n  <<: *a\n")
    assert (4, "`<<` is written twice") in [(one.line, one.message[:21]) for one in found]


def test_an_error_behind_an_alias_names_the_line_where_it_is_written() -> None:
    text = tops(
        """
        - name: a
          resources: &same
            max: {memory: 1.5}  # <-
        - name: b
          resources: *same
        """
    )
    assert [problem.line for problem in problems(text)] == [marked_line(text)] * 2


def test_a_bomb_of_aliases_is_refused() -> None:
    levels = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    (problem,) = problems("\n".join(levels))
    assert f"more than {document.VALUES_MAX} values" in problem.message


def test_a_bomb_of_merges_is_refused() -> None:
    levels = ["l0: &l0 {a: 1}"]
    levels += [f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 9)}]}}" for n in range(1, 12)]
    (problem,) = problems("\n".join(levels))
    assert f"more than {document.VALUES_MAX} values" in problem.message


@pytest.mark.parametrize("text", ["a: &a [*a]", "&a {b: *a}", "a: &a {<<: *a}"])
def test_an_alias_into_itself_is_refused(text: str) -> None:
    (problem,) = problems(text)
    assert f"deeper than {document.DEPTH_MAX} levels" in problem.message


@pytest.mark.parametrize(
    "text", ["[" * 50_000, "{a: " * 50_000, "\n".join(" " * n + "- - -" for n in range(200))]
)
def test_deep_nesting_is_refused_before_anything_is_built(text: str) -> None:
    (problem,) = problems(text)
    assert problem.severity == "error"


def test_the_depth_limit_is_exact() -> None:
    deepest = "[" * document.DEPTH_MAX + "]" * document.DEPTH_MAX
    assert "deeper" not in problems(deepest)[0].message
    assert "deeper" in problems(f"[{deepest}]")[0].message


def test_a_text_that_is_too_long_is_refused() -> None:
    assert "characters, allowed are" in problems("#" * (document.TEXT_MAX + 1))[0].message


def test_many_values_are_refused() -> None:
    (problem,) = problems("[" + "1," * document.VALUES_MAX + "]")
    assert "values, aliases counted" in problem.message


def test_only_the_first_problems_are_listed_and_the_rest_counted() -> None:
    text = tops("\n".join("- nam: a" for _ in range(400)))
    found = problems(text)
    assert len(found) == 501
    assert found[-1].message == "300 more problems are not listed"


def test_the_python_reader_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyYAML comes without libyaml its own reader is used."""
    monkeypatch.setattr(document, "_LOADER", yaml.SafeLoader)
    reporter = Reporter("queues.yaml")
    read = document.read("a: [1, 1_0, yes, ~]\nb: x\n", reporter)
    assert read is not None
    assert read.value == {"a": ["1", "1_0", True, None], "b": "x"}
    assert (reporter.line(("a", 0)), reporter.line(("b",))) == (1, 2)
    for text in ("[", "a: \ud800", 'a: "\\UFFFFFFFF"', "a: 1\nb: \x07"):
        failing = Reporter()
        assert document.read(text, failing) is None
        assert failing.failed
    for text, left_out in (("a: !x 1", ()), ("{a: 1, a: 2}", [("a",)])):
        flawed = Reporter()
        assert document.read(text, flawed) is not None
        assert flawed.failed
        assert sorted(flawed.left_out) == list(left_out)


def test_numbers_and_names_stay_as_they_are_written() -> None:
    text = tops(
        "- {name: 0o17, submitacl: '*'}\n- {name: 2024-01-01, submitacl: '*'}\n- {name: 1e3, submitacl: '*'}"
    )
    names = [child.name for child in accepted(text).partitions[0].root.children]
    assert names == ["0o17", "2024-01-01", "1e3"]
