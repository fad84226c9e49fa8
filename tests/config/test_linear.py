"""Reading takes steps in proportion to the text: near matches are searched only for problems that are listed."""

import difflib
from collections.abc import Callable, Iterator, Sequence

import pytest

from server.config import complaints, partial, properties, rules
from server.config.problems import COMPARISONS_MAX, PROBLEMS_MAX
from server.config.reader import load
from server.model.quota import QUEUES_MAX
from tests.config.texts import problems

MANY = 10_000
HEAD = "partitions:\n- name: default\n  queues:\n  - name: root\n    queues:\n"
LEAF = f"{HEAD}    - name: a\n"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Provide the number of names that each search for a near match compares."""
    found: list[int] = []

    def counted(
        word: str, possibilities: Sequence[str], n: int = 3, cutoff: float = 0.6
    ) -> list[str]:
        found.append(len(possibilities))
        return difflib.get_close_matches(word, possibilities, n, cutoff)

    for module in (complaints, partial, properties, rules):
        monkeypatch.setattr(module, "get_close_matches", counted)
    return found


def lines(write: Callable[[int], str]) -> str:
    return "".join(write(number) for number in range(MANY))


def texts() -> Iterator[tuple[str, str]]:
    yield "keys", f"{{{','.join(f'k{number}: 1' for number in range(MANY))}}}"
    yield "anchored keys", f"{{{','.join(f'&a{number} k{number}: 1' for number in range(MANY))}}}"
    yield "keys of queues", LEAF + lines(lambda number: f"      wieght{number}: 1\n")
    yield (
        "properties",
        f"{LEAF}      properties:\n{lines(lambda number: f'        preemptionx{number}: a{chr(10)}')}",
    )
    yield (
        "rules",
        f"{LEAF}  placementrules:\n{lines(lambda number: f'  - name: fixd{number}{chr(10)}')}",
    )
    yield (
        "queues in rules",
        f"{LEAF}  placementrules:\n{lines(lambda number: f'  - {{name: fixed, value: root.b{number}}}{chr(10)}')}",
    )
    yield (
        "limits",
        f"{LEAF}      limits:\n{lines(lambda number: f'      - {{userz: [u{number}]}}{chr(10)}')}",
    )
    yield "names", HEAD + lines(lambda number: f"    - name: 'a b{number}'\n")


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in texts()])
def test_near_matches_are_for_listed_problems_alone(text: str, searches: list[int]) -> None:
    told = problems(text)
    assert len(told) == PROBLEMS_MAX + 1
    assert told[-1].message.endswith("more problems are not listed")
    assert len(searches) <= 2 * PROBLEMS_MAX, "one for the message, one for what is left out"


def test_near_queues_are_looked_for_up_to_a_number_of_comparisons(searches: list[int]) -> None:
    queues = "".join(f"    - name: a{number}\n" for number in range(1_000))
    wrong = "".join(f"  - {{name: fixed, value: root.b{number}}}\n" for number in range(100))
    assert len(problems(f"{HEAD}{queues}  placementrules:\n{wrong}")) == 100
    assert searches
    assert sum(searches) <= COMPARISONS_MAX


def test_a_partition_takes_a_number_of_queues() -> None:
    def written(number: int) -> str:
        """Return a text of this many queues, root included."""
        return HEAD + "".join(f"    - name: a{count}\n" for count in range(number - 1))

    assert load(written(QUEUES_MAX))[0]
    (told,) = problems(written(QUEUES_MAX + 1))
    assert told.path == "partitions[0].queues"
    assert told.message == "has 10,001 queues, the most that a partition takes are 10,000"
    assert told.advice.startswith("let placement rules create queues")
