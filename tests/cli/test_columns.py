"""The columns of a table at a width, and the shortening of long names."""

import io
from collections.abc import Sequence

from rich.console import Console

from evenhand_cli import terminal
from evenhand_cli.render.columns import ALWAYS, ANSWER, FIRST, Column, facts, fitting, table


def column(name: str, gives_way: int, *cells: str, least: int = 0, names: bool = False) -> Column:
    return Column(name, cells or ("x" * 9, "y" * 9), gives_way, least=least, names=names)


def drawn(columns: Sequence[Column], width: int, encoding: str = "utf-8") -> list[str]:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, width=width, theme=terminal.THEME)
    console.print(table(columns, width))
    stream.seek(0)
    return [line.rstrip() for line in stream.read().splitlines()]


LONG = "lab/train-bert-large-uncased-worker-0000"


def test_names_have_their_width_before_unimportant_columns() -> None:
    columns = [column("pod", ALWAYS, LONG, "lab/b", names=True), column("node", 2)]
    assert [one.name for one in fitting(columns, 51)] == ["pod", "node"]
    assert [one.name for one in fitting(columns, 50)] == ["pod"]


def test_names_are_shortened_in_the_middle_before_an_answer_is_left_out() -> None:
    columns = [column("pod", ALWAYS, LONG, "lab/b", names=True), column("state", ANSWER)]
    lines = drawn(columns, 40)
    assert lines[1].split() == ["lab/train-bert…ed-worker-0000", "xxxxxxxxx"]
    assert lines[2].split() == ["lab/b", "yyyyyyyyy"]
    assert lines[3:] == ["long names are shortened; --output wide", "shows them whole"]


def test_a_shortened_name_keeps_its_indent_and_fits_plain_signs() -> None:
    tree = column("queue", ALWAYS, f"│  ├─ {LONG}", "b", names=True)
    assert drawn([tree], 20)[1] == "│  ├─ lab/tr…er-0000"
    assert drawn([column("pod", ALWAYS, LONG, "b", names=True)], 20, "ascii")[1] == (
        "lab/train~orker-0000"
    )


def test_words_of_a_text_are_not_torn() -> None:
    text = column("why", ALWAYS, "the max of root.research.training-and-more", "b", least=20)
    assert drawn([text], 20)[1:3] == ["the max of", "root.rese…g-and-more"]


def test_no_name_is_shortened_where_the_width_is_not_known() -> None:
    columns = [column("pod", ALWAYS, "x" * 200, names=True), column("node", ANSWER, "y" * 60)]
    assert [one.name for one in fitting(columns, terminal.PIPE_WIDTH)] == ["pod"]


def test_the_least_important_column_is_left_out_first() -> None:
    columns = [column("a", ALWAYS), column("b", 2), column("c", 5), column("d", ANSWER)]
    assert [one.name for one in fitting(columns, 42)] == ["a", "b", "c", "d"]
    assert [one.name for one in fitting(columns, 41)] == ["a", "b", "d"]
    assert [one.name for one in fitting(columns, 20)] == ["a", "d"]
    assert [one.name for one in fitting(columns, 5)] == ["a"]


def test_a_column_that_is_the_same_everywhere_is_left_out_before_others() -> None:
    same = column("state", 2, "active   ", "active   ")
    columns = [column("a", ALWAYS), same, column("c", 8)]
    assert [one.name for one in fitting(columns, 20)] == ["a", "c"]
    answer = column("waits for", ANSWER, "no-node  ", "no-node  ")
    columns = [column("a", ALWAYS), answer, column("c", 8)]
    assert [one.name for one in fitting(columns, 20)] == ["a", "waits for"]


def test_keys_are_left_out_before_what_is_the_same_everywhere() -> None:
    same = column("queue", 3, "root.batch", "root.batch")
    columns = [column("key", FIRST, "x" * 36, "y" * 36), column("pod", ALWAYS), same]
    assert [one.name for one in fitting(columns, 50)] == ["pod", "queue"]


def test_a_long_name_beside_a_fact_is_shortened_and_whole_in_wide_output() -> None:
    path = "root.research.training-and-inference.production-of-the-north"
    for width, first in ((80, "  root.research.trai…uction-of-the-north"), (10_000, f"  {path}")):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        Console(file=stream, width=width, theme=terminal.THEME).print(facts([(path, "too much")]))
        stream.seek(0)
        assert stream.read().splitlines()[0].rstrip() == f"{first}  too much"


def test_a_table_without_wide_output_has_no_note() -> None:
    columns = [column("pod", ALWAYS, LONG, "b", names=True), column("node", 2)]
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    Console(file=stream, width=20, theme=terminal.THEME).print(table(columns, 20, noted=False))
    stream.seek(0)
    assert len(stream.read().splitlines()) == 3
