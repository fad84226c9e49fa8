"""Watches that are cut, silent, too old or broken; no real API server is needed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shim_client.cluster import (
    KINDS,
    Change,
    ClusterError,
    GoneError,
    Listing,
    WatchEvent,
)
from shim_client.informers import follow
from shim_client.kubernetes import watching
from tests.kubernetes.fake_api import (
    CUT,
    HANG,
    Answer,
    Asked,
    World,
    event,
    listing,
    status,
    stream,
    world,
)
from tests.shim.polling import until

ERROR_410 = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}
ERROR_500 = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "odd"}}


async def watch(
    folder: Path, answer: Answer
) -> tuple[list[WatchEvent], ClusterError | None, list[Asked]]:
    """Return all that one watch yields, and its end."""
    found: list[WatchEvent] = []
    error: ClusterError | None = None
    async with world(folder, lambda _: answer) as here:
        try:
            async for one in here.cluster.watch("Pod", 10):
                found.append(one)  # noqa: PERF401
        except ClusterError as ended:
            error = ended
    return found, error, here.api.asked


async def test_a_watch_tells_changes_and_how_far_it_is(tmp_path: Path) -> None:
    lines = [
        event("ADDED", "a", 11, spec={"nodeName": "n"}),
        event("MODIFIED", "a", 12),
        event("BOOKMARK", "", 20),
        event("DELETED", "a", 21),
    ]
    found, error, asked = await watch(tmp_path, stream(*lines))
    assert error is None
    assert [(one.change, one.version) for one in found] == [
        (Change.ADDED, 11), (Change.MODIFIED, 12), (Change.BOOKMARK, 20), (Change.DELETED, 21),
    ]  # fmt: skip
    assert found[0].item["kind"] == "Pod"
    assert found[0].item["spec"] == {"nodeName": "n"}
    assert asked[0].query == {
        "watch": "true", "allowWatchBookmarks": "true",
        "resourceVersion": "10", "timeoutSeconds": str(watching.WATCH_SECONDS),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "kind", "events"),
    [
        (stream(event("ADDED", "a", 11), ERROR_410), GoneError, 1),
        (status(410, "too old"), GoneError, 0),
        (stream(ERROR_500), ClusterError, 0),
        (status(500, "odd"), ClusterError, 0),
        (stream(event("ADDED", "a", 11), CUT), ClusterError, 1),
        (stream(event("ADDED", "a", 11), b'{"type": "MODI'), ClusterError, 1),
        (stream({"type": "ADDED"}), ClusterError, 0),
        (
            stream({"type": "RENAMED", "object": {"metadata": {"resourceVersion": "1"}}}),
            ClusterError,
            0,
        ),
        (stream({"type": "ADDED", "object": {"metadata": {}}}), ClusterError, 0),
        (stream(b"<html>\n"), ClusterError, 0),
    ],
)
async def test_a_watch_that_ends_badly_says_so(
    tmp_path: Path, answer: Answer, kind: type[ClusterError], events: int
) -> None:
    found, error, _ = await watch(tmp_path, answer)
    assert type(error) is kind
    assert len(found) == events


async def test_a_silent_watch_is_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_TIMEOUT", httpx2.Timeout(0.05))
    found, error, _ = await watch(tmp_path, stream(event("ADDED", "a", 11), HANG))
    assert len(found) == 1
    assert type(error) is ClusterError


class Server:
    """A server with scripted lists and watches of pods; everything else exists and is quiet."""

    def __init__(self) -> None:
        self.lists: list[Answer] = []
        self.watches: list[Answer] = []

    def __call__(self, asked: Asked) -> Answer:
        is_watch = "watch" in asked.query
        if asked.path != "/api/v1/pods":
            return stream(HANG) if is_watch else listing()
        if is_watch:
            return self.watches.pop(0) if self.watches else stream(HANG)
        return self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]


class Following:
    """The news received from a server, and the pauses between."""

    def __init__(self) -> None:
        self.news: list[Listing | WatchEvent] = []
        self.pauses: list[float] = []

    async def hear(self, news: Listing | WatchEvent) -> None:
        self.news.append(news)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    def heard(self) -> list[str]:
        lines = []
        for news in self.news:
            if isinstance(news, WatchEvent):
                lines.append(f"{news.change.value} {news.item['metadata']['name']}")
            elif news.kind == "Pod":
                lines.append("list " + " ".join(one["metadata"]["name"] for one in news.items))
        return lines


@asynccontextmanager
async def following(folder: Path, server: Server) -> AsyncIterator[tuple[World, Following]]:
    async with world(folder, server) as here:
        heard = Following()
        task = asyncio.create_task(follow(here.cluster, heard.hear, heard.sleep))
        try:
            yield here, heard
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}}


def versions(here: World) -> list[str]:
    """Return the resource versions that watches of pods began from."""
    asked = [one for one in here.api.of("GET", "/api/v1/pods") if "watch" in one.query]
    return [one.query["resourceVersion"] for one in asked]


def waits(here: World, count: int) -> Callable[[], bool]:
    return lambda: len(versions(here)) >= count


async def test_every_kind_is_listed_before_any_is_watched(tmp_path: Path) -> None:
    server = Server()
    server.lists = [listing(named("a"), version=10)]
    async with following(tmp_path, server) as (here, heard):
        await until(lambda: len(here.api.asked) == 2 * len(KINDS))
    assert [one.kind for one in heard.news if isinstance(one, Listing)] == list(KINDS)
    watched = ["watch" in one.query for one in here.api.asked]
    assert watched == sorted(watched)


async def test_a_watch_that_is_cut_or_ends_goes_on_where_it_was(tmp_path: Path) -> None:
    server = Server()
    server.lists = [listing(named("a"), version=10)]
    server.watches = [
        stream(event("ADDED", "b", 11), CUT),
        stream(event("BOOKMARK", "", 30)),
        stream(event("DELETED", "a", 31)),
    ]
    async with following(tmp_path, server) as (here, heard):
        await until(waits(here, 4))
    assert versions(here) == ["10", "11", "30", "31"]
    assert heard.heard() == ["list a", "ADDED b", "DELETED a"]


async def test_a_version_that_is_too_old_means_a_new_list(tmp_path: Path) -> None:
    server = Server()
    server.lists = [listing(named("a"), version=10), listing(named("b"), version=50)]
    server.watches = [stream(event("ADDED", "c", 11), ERROR_410)]
    async with following(tmp_path, server) as (here, heard):
        await until(waits(here, 2))
    assert versions(here) == ["10", "50"]
    assert heard.heard() == ["list a", "ADDED c", "list b"]


async def test_a_busy_server_is_left_alone_as_long_as_it_asks(tmp_path: Path) -> None:
    server = Server()
    busy = Answer(429, {"kind": "Status"}, {"Retry-After": "3"})
    server.lists = [busy, status(500, "odd"), EXPIRED_PAGE, listing(named("a"), version=10)]
    server.watches = [busy, status(500, "odd"), stream(event("ADDED", "b", 11), HANG)]
    async with following(tmp_path, server) as (here, heard):
        await until(lambda: heard.heard() == ["list a", "ADDED b"])
    assert heard.pauses == [3.0, 0.4, 0.8, 3.0, 0.4]
    assert versions(here) == ["10", "10", "10"]


EXPIRED_PAGE = status(410, "the continue parameter is too old")
