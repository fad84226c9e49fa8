"""Memory stays constant while pods come and go: shim, cluster and core keep nothing of pods that are gone."""

from collections.abc import Callable
from typing import Any

import pytest

from server.core.events import lifecycle
from shim_client.state_machine import jobs
from tests.effort import ONLY_WHERE_ALL_ARE_TRIED, cases, drawn
from tests.shim.churn import Progress, assert_flat, churned, growth, shorten_histories

pytestmark = pytest.mark.alone

SECONDS = cases(120)
"""The seconds of the test; `EVENHAND_EFFORT=500` makes ten minutes of them."""
SOAK_SECONDS = 3600
WAVES_OF_A_LEAK = 30


def for_seconds(seconds: int) -> Progress:
    return lambda passed, _: passed / seconds


def for_waves(waves: int) -> Progress:
    return lambda _, done: done / waves


@ONLY_WHERE_ALL_ARE_TRIED
async def test_memory_is_flat_over_churn(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_histories(monkeypatch)
    found = growth(await churned(for_seconds(SECONDS)))
    print(found)  # noqa: T201
    assert_flat(found)


@pytest.mark.soak
async def test_memory_is_flat_over_an_hour_of_churn(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_histories(monkeypatch)
    found = growth(await churned(for_seconds(SOAK_SECONDS)))
    print(found)  # noqa: T201
    assert_flat(found)


def shim_keeps_records(patch: pytest.MonkeyPatch, kept: list[Any]) -> None:
    leave = jobs.leave

    def keep(state: Any, pod: Any) -> None:
        kept.append(pod)
        leave(state, pod)

    patch.setattr(jobs, "leave", keep)


def core_keeps_asks(patch: pytest.MonkeyPatch, kept: list[Any]) -> None:
    end = lifecycle.end

    def keep(state: Any, partition: Any, ask: Any, now: int) -> Any:
        kept.append(ask)
        return end(state, partition, ask, now)

    patch.setattr(lifecycle, "end", keep)


def somebody_keeps_bytes(patch: pytest.MonkeyPatch, kept: list[Any]) -> None:
    """No small object is kept, as a library in C would do it."""
    leave = jobs.leave

    def keep(state: Any, pod: Any) -> None:
        kept.append(b"x" * (2_000 + len(kept) % 2))
        leave(state, pod)

    patch.setattr(jobs, "leave", keep)


LEAKS = (shim_keeps_records, core_keeps_asks, somebody_keeps_bytes)


@pytest.mark.parametrize("leak", drawn(LEAKS))
async def test_what_is_kept_of_pods_that_are_gone_is_found(
    leak: Callable[[pytest.MonkeyPatch, list[Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_histories(monkeypatch)
    kept: list[Any] = []
    leak(monkeypatch, kept)
    found = growth(await churned(for_waves(WAVES_OF_A_LEAK)))
    assert len(kept) > WAVES_OF_A_LEAK
    with pytest.raises(AssertionError, match="memory grew"):
        assert_flat(found)


async def test_without_a_leak_a_few_waves_are_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found above is then the leak. With a small effort this is also the only test of memory over churn."""
    shorten_histories(monkeypatch)
    assert_flat(growth(await churned(for_waves(WAVES_OF_A_LEAK))))
