"""The figures of `scripts/figures.py`, for inputs small enough to count by hand."""

from pathlib import Path

import pytest

from scripts import figures


def test_sizes_are_by_nearest_rank() -> None:
    assert figures.sizes(range(1, 12)) == figures.Sizes(11, 6, 10)
    assert figures.sizes([]) == figures.Sizes(0, 0, 0)


def test_each_function_and_method_is_measured() -> None:
    source = "def a():\n    return 1\n\nclass B:\n    @c\n    async def d(self):\n        x = 1\n        return x\n"
    assert figures.function_lines(source) == [2, 3]


def test_imports_lead_to_modules_that_are_known() -> None:
    source = "import a.b\nfrom a import c, d\nfrom a.e import f\nfrom z import y\n"
    assert figures.imported(source, ["a.b", "a.c", "a", "a.e"]) == {"a.b", "a.c", "a", "a.e"}


@pytest.mark.parametrize(
    ("arrows", "expected"),
    [
        ({}, 0),
        ({"a": set()}, 1),
        ({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"c"}}, 3),
        ({"a": {"b"}, "b": {"a", "c"}, "c": set()}, 2),
    ],
)
def test_a_circle_is_one_level(arrows: dict[str, set[str]], expected: int) -> None:
    assert figures.levels(arrows) == expected


def test_a_folder_counts_only_what_is_inside() -> None:
    sources = {"s.a": "from s import b\nfrom t import x\n", "s.b": "", "t.x": "from s import a\n"}
    assert figures.folder_imports("s", sources) == figures.Folder(2, 2, 1)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ('p == "trim"', 1),
        ("p != NAME", 1),
        ("p in plans.BOUND", 1),
        ("p in (NAME, other)", 1),
        ("row is ROW", 1),
        ("p == ROW.name", 1),
        ('match p:\n    case "job": ...', 1),
        ("p == q", 0),
        ('cross_node == "quota"', 0),
        ('f("trim")', 0),
    ],
)
def test_comparisons_of_policies_are_counted(line: str, count: int) -> None:
    plans = (
        'NAME = "trim"\nBOUND: Final = frozenset({NAME, "job"})\nROW = PolicyFacts(name="quota")\n'
    )
    sources = {"mine": f"import plans\nfrom plans import NAME, ROW\n{line}\n", "plans": plans}
    found = {one.module: one.comparisons() for one in figures.policy_readers(sources)}
    assert found == {"mine": count, "plans": 0}


def test_files_that_name_a_policy_use_a_string_or_a_constant() -> None:
    sources = {
        "plans": 'NAME = "trim"\n',
        "by_constant": "from plans import NAME\nf(NAME)\n",
        "by_string": 'f("trim")\n',
        "in_a_sentence": 'f("what a trim does")\n',
    }
    found = {one.module: one.named() for one in figures.policy_readers(sources)}
    assert [module for module, named in found.items() if named] == [
        "plans",
        "by_constant",
        "by_string",
    ]


def test_an_id_needs_an_anchor(tmp_path: Path) -> None:
    for name, text in {
        "docs/rules/some.md": "## G4\n",
        "docs/decisions/6.3-order.md": "# 6.3\n",
        "server/a.py": '"""G4, design 6.3; G5 and\ndesign 6.4, seed 5; V1.2 and XG7 are none."""\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert figures.unresolved(tmp_path) == {"G5": 1, "design 6.4": 1}


def test_sentences_are_prose_only() -> None:
    page = "# A heading.\n\nOne sentence. Another\none.\n\n- An item of a list.\n\n| a | table. |\n\n```\nCode is left. Out.\n```\n"
    assert figures.sentences(page) == ["One sentence.", "Another one.", "An item of a list."]


def test_a_seed_draws_the_same_sample_each_time() -> None:
    rows = [("m", f"Sentence {one}.") for one in range(50)]
    drawn = figures.sample(rows, 5, seed=7)
    assert drawn == figures.sample(rows, 5, seed=7)
    assert len(drawn) == 5
    assert drawn == sorted(drawn, key=rows.index)
    assert figures.sample(rows, 99, seed=7) == rows


def test_the_table_fits_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "server/state").mkdir(parents=True)
    (tmp_path / "shim_client").mkdir()
    (tmp_path / "server/state/a.py").write_text("def a():\n    return 1\n")
    lines = figures.table(figures.figures(tmp_path)).splitlines()
    assert max(map(len, lines)) <= figures.WIDTH
    assert lines[1].split() == ["modules,", "lines", "1", "2", "2"]
