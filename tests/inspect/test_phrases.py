"""Quantities, durations and lists in the form of the explanations' sentences."""

import pytest

from server.core.queries.queue_reports import duration_text
from server.model import phrases


@pytest.mark.parametrize(
    ("kind", "amount", "text"),
    [
        ("vcore", 1, "0.001 cores"),
        ("vcore", 250, "0.25 cores"),
        ("vcore", 1000, "1 core"),
        ("vcore", 1500, "1.5 cores"),
        ("vcore", 64_000, "64 cores"),
        ("memory", 10, "10 B memory"),
        ("memory", 1 << 34, "16 GiB memory"),
        ("memory", 3 << 29, "1.5 GiB memory"),
        ("memory", (1 << 30) + 1, "1.001 GiB memory"),
        ("memory", -(1 << 20), "-1 MiB memory"),
        ("hugepages-2Mi", 1 << 21, "2 MiB hugepages-2Mi"),
        ("hostport/TCP/80", 1, "host port TCP/80"),
        ("nvidia.com/gpu", 2, "2 gpu"),
        ("amd.com/gpu", 2, "2 amd.com/gpu"),
    ],
)
def test_a_quantity(kind: str, amount: int, text: str) -> None:
    assert phrases.quantity(kind, amount) == text


def test_a_resource_begins_with_cores_and_memory() -> None:
    amounts = {"gpu": 1, "disk": 0, "memory": 1 << 30, "vcore": 2000}
    assert phrases.quantities(amounts) == "2 cores, 1 GiB memory and 1 gpu"
    assert phrases.quantities({}) == "nothing"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0 s"),
        (119_999, "119 s"),
        (120_000, "2 min"),
        (7_200_000, "2 h"),
        (200_000_000, "2 days"),
    ],
)
def test_a_span(milliseconds: int, text: str) -> None:
    assert phrases.span(milliseconds) == text


def test_a_place_in_an_order() -> None:
    assert [phrases.place(one) for one in (1, 2, 3, 4, 11, 12, 21, 111)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "21st",
        "111th",
    ]


def test_some_of_many() -> None:
    assert phrases.some(["a", "b", "c", "d"], 2) == "a, b and 2 more"
    assert phrases.some(["a"], 2) == "a"
    assert phrases.some([], 2) == ""


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0ms"), (1500, "1500ms"), (30_000, "30s"), (300_000, "5m"), (7_200_000, "2h")],
)
def test_a_duration_as_the_configuration_writes_it(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text
