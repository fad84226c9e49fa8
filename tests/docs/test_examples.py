"""The preemption examples of the documentation, run through the core; commands print what the pages show."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenhand_cli.story.play import Player
from evenhand_cli.story.reading import APPLIED, QUEUES, STEPS, read_examples
from tests.docs.pages import DOCS, STORY, Example, configured, examples, printed, shows

BEHAVIOURS = (
    "preemption",
    "guaranteed-share",
    "weighted-shares",
    "quota-enforcement",
    "daemonset-nodes",
    "jobs",
    "unmet-guarantees",
    "gang-placeholders",
)
SHOWN = (
    "preemption",
    "guaranteed-share",
    "weighted-shares",
    "jobs",
    "quota-enforcement",
    "paced-rounds",
    "daemonset-nodes",
    "shadow",
    "gang-placeholders",
)
"""The pages that show the run of each of their examples."""
EXAMPLES = [example for page in sorted(DOCS.glob("**/*.md")) for example in examples(page)]


@pytest.fixture
def in_utc() -> Iterator[None]:
    """Set the time zone of the pages, UTC, because commands show local time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_utc")
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_happens(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block, text in printed(example, tmp_path):
        assert shows(block, text), f"`TZ=UTC python -m tests.docs` renews the pages: {text}"


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_its_configuration_is_in_order(example: Example) -> None:
    texts = [block.text for block in example.blocks if block.info in {QUEUES, APPLIED}]
    assert [path for text in texts for path in configured(text)[1]] == []


@pytest.mark.parametrize("page", BEHAVIOURS)
def test_every_behaviour_has_an_example_with_steps(page: str) -> None:
    mine = [one for one in EXAMPLES if one.page == f"{page}.md"]
    assert mine
    assert all(any(block.info == STEPS for block in one.blocks) for one in mine)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_runs_by_copy_and_paste(example: Example) -> None:
    copied = "".join(
        block.text for block in example.blocks if block.info in {QUEUES, APPLIED, STEPS}
    )
    (pasted,) = read_examples(copied, "standard input")
    turns, of_page = (list(Player.of(one).turns()) for one in (pasted, example.story))
    assert [one.told for one in turns] == [one.told for one in of_page]
    assert [check for one in turns for check in one.checks if not check.holds] == []
    checks = [[check.what for check in one.checks] for one in turns]
    assert checks == [[check.what for check in one.checks] for one in of_page]


@pytest.mark.parametrize("page", SHOWN)
def test_every_example_shows_its_run(page: str) -> None:
    """The blocks are compared with today's output by `test_an_example_happens`."""
    mine = [one for one in EXAMPLES if one.page == f"{page}.md"]
    runs = [
        line.split()
        for one in mine
        for block in one.blocks
        for line in block.text.splitlines()
        if line.startswith(STORY)
    ]
    named = [(file, only) for _, _, _, file, _, only, *_ in runs]
    assert named == [(f"docs/{page}.md", str(one.story.number)) for one in mine]
