"""The performance page shows the recorded figures, and curves that are drawn from these."""

from tests.bench import curves, page, record


def test_the_page_shows_the_record() -> None:
    held = record.load()
    assert held is not None
    text = page.PAGE.read_text("utf-8")
    assert page.written(text, held) == text, "`python -m tests.bench.page` renews it"


def test_the_curves_are_those_of_the_record() -> None:
    held = record.load()
    assert held is not None
    drawn = curves.PICTURE.read_text("utf-8")
    assert curves.svg(held.rows) == drawn, "`python -m tests.bench.page` renews them"
