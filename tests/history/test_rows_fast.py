"""The packing of frequent events and decisions gives the rows of the plain way, in the same order."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from server.history import rows, rows_fast
from server.history.rows import Row
from server.model.asks import AskSpec, Generation
from server.model.decisions import (
    BARRIER,
    ApplicationAccepted,
    AskReleased,
    AskState,
    AskStateChanged,
    NodeAccepted,
    Placed,
    Released,
    Termination,
)
from server.model.events import AllocationAdded, ApplicationAdded, AskAdded, ReleaseRequested

texts = st.sampled_from(["", "a", "root.ä", "rm", BARRIER]) | st.text(max_size=3)
"""Some texts are no Unicode: the plain way packs them."""
instants = st.none() | st.integers(0, 1 << 70)
specs = st.sampled_from(
    [
        AskSpec((("vcore", 10),)),
        AskSpec((("memory", 1 << 40), ("vcore", 1)), priority=-7),
        AskSpec((("vcore", 1 << 70),)),
        AskSpec(()),
    ]
)
tags = st.lists(st.binary(max_size=3), max_size=2).map(tuple)
endings = st.sampled_from(Termination)
generations = st.sampled_from(Generation)
values = st.one_of(
    st.builds(AskAdded, texts, texts, texts, specs, texts, instants, tags, generations),
    st.builds(
        AllocationAdded,
        *(texts, texts, texts, texts, specs, texts, instants, instants, st.none(), tags),
    ),
    st.builds(ReleaseRequested, texts, texts, texts, texts, endings, texts, generations),
    st.builds(Placed, texts, texts, texts, texts, texts, specs, tags, generations, texts),
    st.builds(Released, texts, texts, texts, texts, endings, texts, texts),
    st.builds(AskStateChanged, texts, texts, texts, st.sampled_from(AskState), texts, texts),
    st.builds(AskReleased, texts, texts, texts, texts, endings, texts),
    st.builds(ApplicationAdded, texts, texts, texts, texts),
    st.builds(ApplicationAccepted, texts, texts, texts, texts),
    st.builds(NodeAccepted, texts, texts),
)


def plain(one: object) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a value, those of a run one by one, without their kinds."""
    for kind, *facts in rows.made(one):
        if kind == Row.RUN:
            yield from map(tuple, rows_fast.unpacked(rows_fast.Run(*facts)))
        else:
            yield tuple(facts)


@given(st.lists(values, max_size=8))
def test_packed_values_give_the_rows_of_the_plain_way(found: list[object]) -> None:
    packed = rows_fast.packed(found)
    expected = [row for one in found for row in plain(one)]
    assert [row for one in packed for row in plain(one)] == expected
    assert rows_fast.count(packed) == len(found)


def test_values_of_one_kind_are_one_run() -> None:
    asks = [AskAdded("rm", f"{n}", "app", AskSpec(()), created_ms=n) for n in range(500)]
    ends = [ReleaseRequested("rm", "app", f"{n}") for n in range(300)]
    first, second = rows_fast.packed([*ends, *asks])
    assert isinstance(first, rows_fast.Run)
    assert isinstance(second, rows_fast.Run)
    assert (first.kind, first.size) == ("ReleaseRequested", 300)
    assert (second.kind, second.size) == ("AskAdded", 500)
