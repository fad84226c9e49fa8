"""ConfigMaps: they are merged, sent to the core and watched; errors are recorded as events on the ConfigMap."""

import asyncio
import base64
import gzip
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from evenhand.v1 import config_pb2
from evenhand.v1.config_pb2_grpc import ConfigurationServiceStub
from shim_client.cluster import Change, ObjectRef, RecordEvent, WatchEvent
from shim_client.config import CONFIG_BYTES_MAX, Settings, settings_from, unclear_settings
from shim_client.messages import ConfigurationAnswer, ConfigurationReport
from shim_client.state_machine.objects.configuration import QueuesChanged
from shim_client.translate.config_map import merged
from tests.shim.kept import events_of
from tests.shim.objects import Item, node, pod
from tests.shim.polling import SECONDS_MAX, until
from tests.shim.rig import QUEUES, WatchedCluster, core_here, free_port, shim_at_work, waiting
from tests.shim.story import Story

OWN = "evenhand"


def config_map(name: str = "yunikorn-configs", ns: str = OWN, **data: str) -> Item:
    flat = {key.replace("__", "."): value for key, value in data.items()}
    return {
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": ns, "uid": f"uid-{name}"},
        "data": flat,
    }


def queues(text: str, **more: str) -> Item:
    return config_map(queues__yaml=text, **more)


def started(*items: Item, known: str = "one") -> Story:
    settings = Settings(namespace=OWN, queues=known)
    return Story(settings=settings).start(node("n1"), *items)


def texts(story: Story) -> list[str]:
    found = [one.text for one in story.reports if isinstance(one, ConfigurationReport)]
    story.forget()
    return found


def events(story: Story) -> list[tuple[str, str, bool]]:
    found = [
        (one.reason, one.message, one.warning)
        for one in story.actions
        if isinstance(one, RecordEvent) and one.about.kind == "ConfigMap"
    ]
    story.forget()
    return found


def test_what_the_core_was_told_at_the_start_is_not_told_again() -> None:
    assert texts(started(queues("one"))) == []
    assert texts(started(queues("two"))) == ["two"]


def test_a_changed_configuration_is_told_at_once() -> None:
    story = started(queues("one"))
    story.forget()
    story.see(queues("two"))
    assert texts(story) == ["two"]
    story.see(queues("two"))
    assert texts(story) == []
    story.gone(queues("two"))
    assert texts(story) == []


def test_the_second_map_wins_and_the_first_counts_where_it_is_silent() -> None:
    base = config_map("yunikorn-defaults", queues__yaml="base")
    story = started(base, queues("two"))
    assert texts(story) == ["two"]
    story.gone(base)
    assert texts(story) == []
    assert texts(started(base)) == ["base"]
    story.see(config_map("yunikorn-configs", service__policyGroup="other", other__yaml="third"))
    assert texts(story) == ["third"]


def test_other_maps_are_nobodys_business() -> None:
    story = started(queues("one"))
    story.forget()
    story.see(config_map("something", queues__yaml="two"))
    assert texts(story) == []
    story = Story().start(node("n1"), queues("two"))
    assert texts(story) == []


def test_no_hot_refresh() -> None:
    settings = Settings(namespace=OWN, queues="one", hot_refresh=False)
    story = Story(settings=settings).start(queues("one")).forget()
    story.see(queues("two", service__enableConfigHotRefresh="false"))
    assert texts(story) == []


def test_a_configuration_outlives_the_session() -> None:
    story = started(queues("one")).forget()
    story.mirror.handle(_seen(queues("two")))
    story.lose()
    assert texts(story) == ["two"]


def _seen(item: Item) -> WatchEvent:
    return WatchEvent(Change.MODIFIED, "ConfigMap", item, 1)


def test_what_the_core_says_is_an_event_on_the_map() -> None:
    story = started(queues("one")).forget()
    story.hear(ConfigurationAnswer("two", applied=True))
    assert events(story) == [("ConfigurationApplied", "the queues are in force", False)]
    story.hear(ConfigurationAnswer("two", applied=True))
    assert events(story) == []
    many = tuple(f"line {number}: bad" for number in range(9))
    story.hear(ConfigurationAnswer("three", applied=False, problems=many))
    [(reason, message, warning)] = events(story)
    assert (reason, warning) == ("ConfigurationRefused", True)
    assert message == "nothing was changed; " + "; ".join(many[:5]) + "; and 4 more"


def test_a_bad_setting_changes_nothing_and_is_said_once() -> None:
    story = started(queues("one")).forget()
    bad = queues("two", service__podAllowPreemption="perhaps")
    story.see(bad, bad)
    assert not [one for one in story.reports if isinstance(one, ConfigurationReport)]
    [(reason, message, warning)] = events(story)
    assert (reason, warning) == ("ConfigurationRefused", True)
    assert "podAllowPreemption" in message
    story.see(queues("three"))
    assert texts(story) == ["three"]
    story.see(bad)
    assert len(events(story)) == 1


def test_settings_that_need_a_restart_are_said() -> None:
    story = started(queues("one")).forget()
    story.see(queues("one", service__clusterId="other"))
    assert [reason for reason, _, _ in events(story)] == ["RestartNeeded"]


def packed(text: bytes) -> str:
    return base64.b64encode(text).decode()


def test_packed_texts_are_unpacked() -> None:
    item = {
        **config_map(),
        "binaryData": {"queues.yaml.gz": packed(gzip.compress(b"two", mtime=0))},
    }
    assert texts(started(item)) == ["two"]


@pytest.mark.parametrize(
    "content",
    [
        "no base64!",
        packed(b"no gzip"),
        packed(gzip.compress(b"two", mtime=0)[:-4]),
        packed(gzip.compress(b"\xff\xfe", mtime=0)),
        packed(gzip.compress(b"0" * (CONFIG_BYTES_MAX + 1))),
    ],
)
def test_what_cannot_be_unpacked_is_a_problem(content: str) -> None:
    flat, problems = merged([{**config_map(), "binaryData": {"queues.yaml.gz": content}}])
    assert flat == {}
    assert len(problems) == 1


def test_rates_are_settings() -> None:
    settings = settings_from({"kubernetes.qps": "50", "kubernetes.burst": "70"})
    assert (settings.qps, settings.burst) == (50, 70)
    for bad in ("0", "-1", "x", "1e3", "999999999"):
        with pytest.raises(ValueError, match=r"kubernetes\.qps"):
            settings_from({"kubernetes.qps": bad})


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [("10m", 600_000), ("1m30s", 90_000), ("0", 0), ("24h", 86_400_000)],
)
def test_the_time_to_wait_for_volumes_is_a_setting(written: str, milliseconds: int) -> None:
    flat = {"service.volumeBindTimeout": written}
    assert settings_from(flat).volume_bind_ms == milliseconds
    assert unclear_settings(flat) == []
    assert (settings_from({}).volume_bind_ms, unclear_settings({})) == (120_000, [])


@pytest.mark.parametrize("written", ["ten minutes", "10", "-1s", "24h1ms", ""])
def test_a_time_that_cannot_be_used_is_a_warning_and_the_default_counts(written: str) -> None:
    flat = {"service.volumeBindTimeout": written}
    assert settings_from(flat).volume_bind_ms == 120_000
    [line] = unclear_settings(flat)
    assert line.startswith(f"service.volumeBindTimeout: {written!r}")
    story = started(queues("one", service__volumeBindTimeout=written))
    assert events(story) == [("SettingNotClear", line, True)]
    story.see(queues("one", service__volumeBindTimeout=written))
    assert events(story) == []
    story.see(queues("one"))
    story.see(queues("one", service__volumeBindTimeout=written))
    assert events(story) == [("SettingNotClear", line, True)]


def test_another_time_to_wait_for_volumes_needs_a_restart() -> None:
    story = started(queues("one")).forget()
    story.see(queues("one", service__volumeBindTimeout="10m"))
    assert [reason for reason, _, _ in events(story)] == ["RestartNeeded"]


def said(cluster: WatchedCluster) -> list[str]:
    return [kept.reason for kept in events_of(cluster, "yunikorn-configs", "ConfigMap")]


def settled(text: str) -> Item:
    return queues(text, service__clusterId="end-to-end")


async def test_a_core_takes_good_ones_and_refuses_bad_ones() -> None:
    cluster = WatchedCluster()
    cluster.create(node("n1"))
    cluster.store.put(settled(QUEUES))
    settings = Settings(cluster_id="end-to-end", namespace=OWN, queues=QUEUES)
    async with core_here() as address, shim_at_work(cluster, address, settings):
        cluster.create(pod("a"))
        await until(lambda: not waiting(cluster))
        await until(lambda: said(cluster) == ["ConfigurationApplied"])
        cluster.store.put(settled(QUEUES + "nonsense: true"))
        await until(lambda: "ConfigurationRefused" in said(cluster))
        more = QUEUES.replace("[{name: a}, {name: b}]", "[{name: a}, {name: new}]")
        cluster.store.put(settled(more))
        await until(lambda: events_of(cluster, "yunikorn-configs", "ConfigMap")[0].count == 2)
        cluster.create(pod("b", labels={"queue": "root.new", "applicationId": "other"}))
        await until(lambda: not waiting(cluster))


def words(cluster: WatchedCluster) -> list[str]:
    return [kept.message for kept in events_of(cluster, "yunikorn-configs", "ConfigMap")]


def named(leaf: str) -> str:
    return QUEUES.replace("[{name: a}, {name: b}]", f"[{{name: a}}, {{name: {leaf}}}]")


async def apply(address: str, text: str) -> None:
    """Apply a configuration as an operator does."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = ConfigurationServiceStub(channel)
        assert (await stub.Apply(config_pb2.ApplyRequest(yaml=text, source="apply q.yaml"))).applied


async def in_force(address: str) -> str:
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = ConfigurationServiceStub(channel)
        return str((await stub.Get(config_pb2.GetRequest())).yaml)


async def test_a_shim_that_starts_again_does_not_undo_an_operator_and_says_so() -> None:
    cluster = WatchedCluster()
    cluster.store.put(settled(QUEUES))
    settings = Settings(cluster_id="end-to-end", namespace=OWN, queues=QUEUES)
    async with core_here() as address:
        async with shim_at_work(cluster, address, settings):
            await until_in_force(address, QUEUES)
        await apply(address, named("operators"))
        async with shim_at_work(cluster, address, settings):
            await until(lambda: "ConfigurationRefused" in said(cluster))
            assert re.search(
                r"revision \d+ by local \(.* UTC\) stays in force until", words(cluster)[-1]
            )
            assert await in_force(address) == named("operators")
            cluster.store.put(settled(named("changed")))
            await until_in_force(address, named("changed"))


async def test_a_session_with_a_core_that_was_started_again_does_not_either(tmp_path: Path) -> None:
    cluster = WatchedCluster()
    cluster.store.put(settled(QUEUES))
    settings = Settings(cluster_id="end-to-end", namespace=OWN, queues=QUEUES)
    port = free_port()
    async with AsyncExitStack() as stack:
        async with core_here(port, tmp_path) as address:
            await stack.enter_async_context(shim_at_work(cluster, address, settings))
            cluster.store.put(settled(named("changed")))
            await until_in_force(address, named("changed"))
            await apply(address, named("operators"))
        async with core_here(port, tmp_path) as address:
            await until(lambda: "ConfigurationRefused" in said(cluster))
            assert await in_force(address) == named("operators")
            cluster.store.put(settled(named("again")))
            await until_in_force(address, named("again"))
            await stack.aclose()


async def until_in_force(address: str, text: str) -> None:
    """Wait until the text that the shim sent is in force."""
    async with asyncio.timeout(SECONDS_MAX):
        while await in_force(address) != text:  # noqa: ASYNC110 - the shim sends it when it can
            await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["deleted", "emptied"])
def test_a_map_without_its_queues_leaves_the_old_ones_in_force(how: str) -> None:
    defaults = queues("mild", name="yunikorn-defaults")
    story = started(defaults, queues("one"))
    story.forget()
    if how == "deleted":
        story.gone(queues("one"))
    else:
        story.see(config_map())
    assert [one for one in story.reports if isinstance(one, ConfigurationReport)] == []
    [(reason, message, warning)] = events(story)
    assert (reason, warning) == ("ConfigurationNotApplied", True)
    assert "yunikorn-configs" in message
    story.see(queues("two"))
    assert texts(story) == ["two"]


FILE = ObjectRef("File", "", "queues.yaml")


def file_events(story: Story) -> list[tuple[str, bool]]:
    return [
        (one.reason, one.warning)
        for one in story.actions
        if isinstance(one, RecordEvent) and one.about == FILE
    ]


def test_queues_of_a_file_are_sent_when_they_differ_and_answers_are_events_on_it() -> None:
    story = Story(settings=Settings(queues="one")).start(node("n1")).forget()
    for text in ("one", "two", "two", "one"):
        story.mirror.handle(QueuesChanged(text, FILE))
    reports, _ = story.mirror.take()
    assert [one.text for one in reports if isinstance(one, ConfigurationReport)] == ["two", "one"]
    story.hear(ConfigurationAnswer("two", applied=True))
    story.hear(ConfigurationAnswer("one", applied=False, problems=("line 1: bad",)))
    assert file_events(story) == [("ConfigurationApplied", False), ("ConfigurationRefused", True)]


async def test_changed_queues_of_a_file_come_into_force_and_bad_ones_do_not() -> None:
    cluster = WatchedCluster()
    told: list[ConfigurationAnswer] = []
    async with core_here() as address, shim_at_work(cluster, address) as shim:
        shim.on_configured.append(told.append)
        await until(lambda: shim.progress().tally.live)
        await shim.configure(named("new"), FILE)
        await until_in_force(address, named("new"))
        await shim.configure(QUEUES + "nonsense: true", FILE)
        await until(lambda: len(told) == 2)
        assert await in_force(address) == named("new")
        await shim.configure(named("new"), FILE)
        await until(lambda: len(told) == 3)
    assert [one.applied for one in told] == [True, False, True]
    assert any("nonsense" in problem for problem in told[1].problems)
    reasons = [kept.reason for kept in events_of(cluster, "queues.yaml", "File")]
    assert reasons == ["ConfigurationApplied", "ConfigurationRefused"]


@pytest.mark.parametrize("last_is_good", [True, False])
async def test_a_core_without_a_state_gets_the_last_good_queues_with_the_registration(
    last_is_good: bool,  # noqa: FBT001
) -> None:
    cluster, port = WatchedCluster(), free_port()
    bad = QUEUES + "nonsense: true"
    async with AsyncExitStack() as stack:
        async with core_here(port) as address:
            shim = await stack.enter_async_context(shim_at_work(cluster, address))
            await until(lambda: shim.progress().tally.live)
            await shim.configure(named("new"), FILE)
            await until_in_force(address, named("new"))
            if not last_is_good:
                await shim.configure(bad, FILE)
                await until(lambda: len(events_of(cluster, "queues.yaml", "File")) == 2)
        async with core_here(port) as address:
            await until(lambda: shim.progress().sessions == 2)
            assert await in_force(address) == named("new")
            assert await revision(address) == 2
            await stack.aclose()


async def revision(address: str) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = ConfigurationServiceStub(channel)
        return int((await stub.Get(config_pb2.GetRequest())).revision)
