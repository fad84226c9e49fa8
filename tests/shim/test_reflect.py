"""List and watch: the order of lists, new lists after a gap or an error, no change missed."""

import asyncio
from collections.abc import AsyncIterator

from shim_client.cluster import KINDS, ClusterError, Listing, WatchEvent
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.informers import RESUMES_MAX, UNSERVED_SECONDS, follow
from tests.shim.objects import node, pod
from tests.shim.polling import until
from tests.shim.test_embedded_store import Clock
from tests.shim.test_pod_groups import group


class Reader:
    """A cluster whose lists and watches fail as told."""

    def __init__(
        self, cluster: EmbeddedCluster, list_errors: int = 0, watch_events: int = 0
    ) -> None:
        self.cluster = cluster
        self.list_errors = list_errors
        self.watch_events = watch_events
        """Events after which the first watch of pods fails; 0: it does not."""

    async def list_objects(self, kind: str) -> Listing:
        if self.list_errors:
            self.list_errors -= 1
            raise ClusterError("500")
        return await self.cluster.list_objects(kind)

    async def watch(self, kind: str, version: int) -> AsyncIterator[WatchEvent]:
        async for event in self.cluster.watch(kind, version):
            yield event
            if kind == "Pod" and self.watch_events:
                self.watch_events -= 1
                if not self.watch_events:
                    raise ClusterError("the watch was cut")


class Heard:
    """A consumer of news that keeps them and can be held up."""

    def __init__(self) -> None:
        self.news: list[Listing | WatchEvent] = []
        self.pauses: list[float] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def tell(self, news: Listing | WatchEvent) -> None:
        await self.may_go_on.wait()
        self.news.append(news)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    def lists(self, kind: str) -> list[Listing]:
        return [one for one in self.news if isinstance(one, Listing) and one.kind == kind]

    def pods(self) -> set[str]:
        """Return the names of the pods that exist according to the news."""
        known: set[str] = set()
        for news in self.news:
            if isinstance(news, Listing) and news.kind == "Pod":
                known = {item["metadata"]["name"] for item in news.items}
            elif isinstance(news, WatchEvent) and news.kind == "Pod":
                change = known.discard if news.change.value == "DELETED" else known.add
                change(news.item["metadata"]["name"])
        return known


async def test_every_kind_is_listed_in_order_and_then_watched() -> None:
    cluster, heard = EmbeddedCluster(Clock()), Heard()
    cluster.create(node("n1"))
    task = asyncio.create_task(follow(Reader(cluster, list_errors=2), heard.tell, heard.sleep))
    await until(lambda: len(heard.news) == len(KINDS))
    assert [one.kind for one in heard.news] == list(KINDS)
    assert heard.pauses == [0.2, 0.4]
    cluster.create(pod("a"))
    await until(lambda: heard.pods() == {"a"})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_kind_that_is_not_served_is_listed_again_and_watched_once_it_is() -> None:
    class Growing(Reader):
        unserved = 3

        async def list_objects(self, kind: str) -> Listing:
            if kind == "PodGroup" and self.unserved:
                self.unserved -= 1
                return Listing(kind, [], 0, served=False)
            return await super().list_objects(kind)

        async def watch(self, kind: str, version: int) -> AsyncIterator[WatchEvent]:
            assert kind != "PodGroup" or version, "a kind that is not served cannot be watched"
            async for event in super().watch(kind, version):
                yield event

    cluster, heard = EmbeddedCluster(Clock()), Heard()
    cluster.create(group("one", 2))
    task = asyncio.create_task(follow(Growing(cluster), heard.tell, heard.sleep))
    await until(lambda: len(heard.lists("PodGroup")) == 4)
    assert [one.served for one in heard.lists("PodGroup")] == [False, False, False, True]
    assert heard.pauses == [UNSERVED_SECONDS] * 3
    cluster.create(group("two", 2))
    await until(lambda: isinstance(heard.news[-1], WatchEvent))
    assert heard.news[-1].kind == "PodGroup"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_watch_that_is_cut_goes_on_where_it_was() -> None:
    cluster, heard = EmbeddedCluster(Clock()), Heard()
    task = asyncio.create_task(follow(Reader(cluster, watch_events=2), heard.tell, heard.sleep))
    await until(lambda: len(heard.news) == len(KINDS))
    for name in "abc":
        cluster.create(pod(name))
    cluster.delete("Pod", ("work", "b"))
    await until(lambda: heard.pods() == {"a", "c"})
    cluster.create(pod("d"))
    await until(lambda: heard.pods() == {"a", "c", "d"})
    assert len(heard.lists("Pod")) == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_watch_that_keeps_failing_is_made_good_by_a_new_list() -> None:
    class Deaf(Reader):
        failures = RESUMES_MAX

        async def watch(self, kind: str, version: int) -> AsyncIterator[WatchEvent]:
            if kind == "Pod" and self.failures:
                self.failures -= 1
                raise ClusterError("no such version", retry_after=5)
            async for event in super().watch(kind, version):
                yield event

    cluster, heard = EmbeddedCluster(Clock()), Heard()
    task = asyncio.create_task(follow(Deaf(cluster), heard.tell, heard.sleep))
    await until(lambda: len(heard.lists("Pod")) == 2)
    assert heard.pauses == [5.0, 5.0, 5.0, 5.0, 5.0]
    cluster.create(pod("a"))
    await until(lambda: heard.pods() == {"a"})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_reader_that_fell_too_far_behind_lists_again() -> None:
    cluster, heard = EmbeddedCluster(Clock(), history_max=10), Heard()
    task = asyncio.create_task(follow(Reader(cluster), heard.tell, heard.sleep))
    await until(lambda: len(heard.news) == len(KINDS))
    heard.may_go_on.clear()
    for number in range(60):
        cluster.create(pod(f"p{number}"))
        await asyncio.sleep(0)
        if number % 2:
            cluster.delete("Pod", ("work", f"p{number}"))
    heard.may_go_on.set()
    await until(lambda: heard.pods() == {f"p{number}" for number in range(0, 60, 2)})
    assert len(heard.lists("Pod")) == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
