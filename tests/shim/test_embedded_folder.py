"""The directory of an embedded cluster: changes of its files, the saved state, and what stays over a restart."""

import asyncio
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shim_client.cluster import Bind, ObjectRef
from shim_client.embedded import requests
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.embedded.folder import Folder
from shim_client.embedded.keeping import NoStateError, StateFile, StateInUseError, default_folder
from shim_client.embedded.loading import read_directory
from shim_client.embedded.saved import BadStateError, Saved, fold, line, records
from tests.shim.kept import events_of
from tests.shim.objects import Item, node, pod
from tests.shim.test_embedded_store import Clock
from tests.shim.test_embedded_workloads import workload


def write(folder: Path, name: str, *items: Item) -> None:
    """Write a file of JSON documents, so that its stamp differs from that of the file before."""
    folder.mkdir(exist_ok=True)
    fresh = folder / f"{name}.new"
    fresh.write_text("\n".join(json.dumps(one) for one in items))
    fresh.rename(folder / name)


class Rig:
    """A cluster that follows a directory, with the texts that it said."""

    def __init__(self, folder: Path, state: Path | None = None, now: int | None = None) -> None:
        clock = Clock()
        clock.now = now or clock.now
        self.clock = clock
        self.cluster = EmbeddedCluster(clock)
        self.state = StateFile(state) if state else None
        self.folder = Folder(folder, self.cluster, self.state)
        saved = self.state.read_for(folder) if self.state else Saved()
        self.report = self.folder.start(read_directory(folder), saved)
        self.said: list[str] = []

    def look(self) -> list[str]:
        """Look twice, because a change counts when it is complete; return what was said."""
        self.said.clear()
        for _ in range(2):
            asyncio.run(self.folder.look(self.said.append))
        return list(self.said)

    def names(self, kind: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.cluster.store.all(kind)]

    def close(self) -> None:
        if self.state is not None:
            self.state.close()

    def everything(self) -> list[Any]:
        """Return all objects without their versions."""
        return sorted(
            (
                {**item, "metadata": {**item["metadata"], "resourceVersion": ""}}
                for item in self.cluster.store.everything()
            ),
            key=lambda item: (item["kind"], item["metadata"]["name"]),
        )


def test_added_changed_and_removed_objects_follow_the_files(tmp_path: Path) -> None:
    write(tmp_path, "nodes.json", node("n1"), node("n2"))
    write(tmp_path, "pods.json", pod("a"), pod("b"))
    rig = Rig(tmp_path)
    assert rig.look() == []
    write(tmp_path, "pods.json", pod("b"), pod("c"))
    write(tmp_path, "nodes.json", node("n1", cpu="16"), node("n2"))
    (said,) = rig.look()
    assert said == f"{tmp_path}: 1 deleted, 1 configured, 1 created"
    assert rig.names("Pod") == ["b", "c"]
    changed = rig.cluster.store.get("Node", ("", "n1"))
    assert changed is not None
    assert changed["status"]["allocatable"]["cpu"] == "16"
    (tmp_path / "pods.json").unlink()
    rig.look()
    assert rig.names("Pod") == []


def test_a_broken_file_keeps_its_objects_and_says_so_once(tmp_path: Path) -> None:
    write(tmp_path, "nodes.json", node("n1"))
    write(tmp_path, "pods.json", pod("a"))
    rig = Rig(tmp_path)
    (tmp_path / "pods.json").write_text("kind: Pod\nmetadata: {name: [\n")
    write(tmp_path, "nodes.json", node("n1"), node("n2"))
    said = rig.look()
    assert said[0].startswith(f"{tmp_path}: pods.json:")
    assert "its objects stay as they are" in said[0]
    assert rig.names("Pod") == ["a"]
    assert rig.names("Node") == ["n1", "n2"]
    (event,) = events_of(rig.cluster, "pods.json", kind="File")
    assert (event.reason, event.warning, event.count) == ("FileNotReadable", True, 1)
    write(tmp_path, "nodes.json", node("n1"))
    assert len(rig.look()) == 1
    write(tmp_path, "pods.json", pod("b"))
    assert rig.look() == [f"{tmp_path}: 1 deleted, 1 created"]


def test_changed_settings_are_said_not_ignored(tmp_path: Path) -> None:
    write(tmp_path, "n.json", node("n1"))
    rig = Rig(tmp_path)
    settings = {"kind": "ConfigMap", "metadata": {"name": "yunikorn-configs"}, "data": {}}
    write(tmp_path, "settings.json", settings)
    said = rig.look()
    assert said == [
        f"{tmp_path}: 1 created",
        f"{tmp_path}: ConfigMap yunikorn-configs: its settings count when the shim starts the next time",
    ]


async def followed(rig: Rig, *turns: Callable[[], object], hot: bool = True) -> list[str]:
    """Follow a directory, with one change of it before each two looks; return the queue configurations that were sent."""
    sent: list[str] = []
    left = [step for turn in turns for step in (turn, lambda: None)]

    async def configure(text: str, file: ObjectRef) -> None:
        assert file == ObjectRef("File", "", "queues.yaml")
        sent.append(text)

    async def sleep(_: float) -> None:
        if not left:
            raise TimeoutError
        left.pop(0)()

    with pytest.raises(TimeoutError):
        await rig.folder.follow(rig.said.append, configure if hot else None, sleep)
    return sent


def queues_file(folder: Path, text: str) -> Callable[[], object]:
    """Return a function that writes the queue configuration of a directory."""

    def written() -> None:
        fresh = folder / "queues.new"
        fresh.write_text(text)
        fresh.rename(folder / "queues.yaml")

    return written


@pytest.fixture
def queued(tmp_path: Path) -> Rig:
    """Return a cluster whose queues.yaml says `one`."""
    write(tmp_path, "n.json", node("n1"))
    queues_file(tmp_path, "one")()
    return Rig(tmp_path)


async def test_changed_queues_are_sent_each_time_and_only_then(queued: Rig, tmp_path: Path) -> None:
    two, one = queues_file(tmp_path, "two"), queues_file(tmp_path, "one")
    more = partial(write, tmp_path, "n.json", node("n1"), node("n2"))
    assert await followed(queued, two, two, more, one) == ["two", "one"]
    assert queued.said.count(f"{tmp_path}/queues.yaml has changed: sent to the core") == 2


async def test_changed_queues_wait_for_the_next_start_without_hot_refresh(
    queued: Rig, tmp_path: Path
) -> None:
    assert await followed(queued, queues_file(tmp_path, "two"), hot=False) == []
    assert queued.said == [
        f"{tmp_path}/queues.yaml has changed: it counts when the shim starts the next time"
    ]


@pytest.mark.parametrize("how", ["deleted", "emptied"])
async def test_lost_queues_stay_in_force_and_are_said_once(
    queued: Rig, tmp_path: Path, how: str
) -> None:
    file = tmp_path / "queues.yaml"
    lose = file.unlink if how == "deleted" else queues_file(tmp_path, "\n")
    more = partial(write, tmp_path, "n.json", node("n1"), node("n2"))
    same, other = queues_file(tmp_path, "one"), queues_file(tmp_path, "two")
    assert await followed(queued, lose, more, same, other) == ["two"]
    (event,) = events_of(queued.cluster, "queues.yaml", kind="File")
    assert (event.reason, event.warning, event.count) == ("ConfigurationNotApplied", True, 1)
    assert "stay in force" in event.message


async def test_queues_that_cannot_be_read_are_not_lost_ones(queued: Rig, tmp_path: Path) -> None:
    def unreadable() -> None:
        (tmp_path / "queues.yaml").write_bytes(b"\xff\xfe")

    assert await followed(queued, unreadable, queues_file(tmp_path, "one")) == []
    (event,) = events_of(queued.cluster, "queues.yaml", kind="File")
    assert event.reason == "FileNotReadable"


def test_what_a_command_changed_stays_until_the_manifest_changes(tmp_path: Path) -> None:
    write(tmp_path, "w.json", node("n1"), workload("Deployment", "web", replicas=2))
    rig = Rig(tmp_path)
    requests.scale(rig.cluster, ("Deployment", "work", "web"), 5)
    requests.cordon(rig.cluster, "n1", unschedulable=True)
    write(tmp_path, "more.json", pod("a"))
    rig.look()
    rig.cluster.step()
    assert len(rig.names("Pod")) == 6
    write(
        tmp_path,
        "w.json",
        node("n1", labels={"a": "b"}),
        workload("Deployment", "web", replicas=3),
    )
    rig.look()
    assert len(rig.names("Pod")) == 4
    there = rig.cluster.store.get("Node", ("", "n1"))
    assert there is not None
    assert there["spec"]["unschedulable"] is True
    assert there["metadata"]["labels"] == {"a": "b"}


def test_a_label_that_left_the_manifest_leaves_the_object_and_others_stay(tmp_path: Path) -> None:
    write(tmp_path, "n.json", node("n1", labels={"mine": "1", "both": "1"}))
    rig = Rig(tmp_path)
    there: Any = rig.cluster.store.get("Node", ("", "n1"))
    labels = {**there["metadata"]["labels"], "theirs": "1"}
    rig.cluster.replace({**there, "metadata": {**there["metadata"], "labels": labels}})
    write(tmp_path, "n.json", node("n1", labels={"both": "2"}))
    rig.look()
    now: Any = rig.cluster.store.get("Node", ("", "n1"))
    assert now["metadata"]["labels"] == {"both": "2", "theirs": "1"}


def test_a_change_that_needs_a_new_pod_is_refused_and_says_how(tmp_path: Path) -> None:
    write(tmp_path, "p.json", node("n1"), pod("a"))
    rig = Rig(tmp_path)
    write(tmp_path, "p.json", node("n1"), pod("a", cpu="2"))
    (said,) = rig.look()
    assert "spec.containers: cannot be changed; delete Pod a, then apply" in said
    (event,) = events_of(rig.cluster, "a")
    assert event.reason == "Refused"


async def test_everything_is_there_again_after_a_restart(tmp_path: Path) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    write(
        files,
        "all.json",
        node("n1"),
        workload("Deployment", "web", replicas=3),
        pod("alone"),
        pod("short", annotations={"evenhand.io/run-seconds": "5"}),
    )
    rig = Rig(files, state)
    for item in list(rig.cluster.pods())[:3]:
        await rig.cluster.bind(Bind(rig.cluster.ref_of(item), "n1"))
    short = rig.cluster.store.get("Pod", ("work", "short"))
    assert short is not None
    await rig.cluster.bind(Bind(rig.cluster.ref_of(short), "n1"))
    rig.cluster.step()
    requests.delete(rig.cluster, ("Pod", "work", "alone"))
    rig.cluster.step()
    before, now = rig.everything(), rig.clock.now
    rig.close()
    again = Rig(files, state, now + 1000)
    assert again.everything() == before
    assert again.report.text() == ""
    assert again.cluster.store.get("Pod", ("work", "alone")) is None
    again.clock.now = now + 5000
    again.cluster.step()
    ended: Any = again.cluster.store.get("Pod", ("work", "short"))
    assert ended["status"]["phase"] == "Succeeded"
    requests.scale(again.cluster, ("Deployment", "work", "web"), 4)
    again.cluster.step()
    assert len(again.names("Pod")) == 5
    again.close()


def test_only_one_process_has_a_state(tmp_path: Path) -> None:
    first = StateFile(tmp_path)
    with pytest.raises(StateInUseError):
        StateFile(tmp_path)
    first.close()
    StateFile(tmp_path).close()


def test_the_state_of_another_directory_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write(tmp_path / name, "n.json", node(name))
    Rig(tmp_path / "one", tmp_path / "state").close()
    with pytest.raises(BadStateError, match=r"another cluster directory, .*/one"):
        Rig(tmp_path / "other", tmp_path / "state")
    again = Rig(tmp_path / "one", tmp_path / "state2")
    assert again.names("Node") == ["one"]
    again.close()


def test_only_its_owner_reads_a_state(tmp_path: Path) -> None:
    write(tmp_path / "files", "n.json", node("n1"))
    rig = Rig(tmp_path / "files", tmp_path / "made" / "state")
    assert rig.state is not None
    assert rig.state.path.stat().st_mode & 0o077 == 0
    assert rig.state.path.parent.stat().st_mode & 0o077 == 0
    rig.close()


async def test_changed_files_are_followed_in_the_background(tmp_path: Path) -> None:
    write(tmp_path, "n.json", node("n1"))
    rig = Rig(tmp_path)
    turns = iter(range(5))

    async def change(_: float) -> None:
        turn = next(turns, None)
        if turn == 0:
            write(tmp_path, "m.json", node("n2"))
        if turn is None:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        await rig.folder.follow(rig.said.append, None, change)
    assert rig.names("Node") == ["n1", "n2"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NoStateError, match="file"):
        StateFile(tmp_path / "file" / "state")


def test_the_file_is_rewritten_when_it_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shim_client.embedded.keeping.GROWTH_BYTES", 1_000)
    files = tmp_path / "files"
    write(files, "n.json", node("n1"))
    rig = Rig(files, tmp_path / "state")
    for number in range(500):
        requests.cordon(rig.cluster, "n1", unschedulable=number % 2 == 0)
    assert rig.state is not None
    assert rig.state.path.stat().st_size < 10_000
    assert rig.state.failure == ""
    before = rig.everything()
    rig.close()
    again = Rig(files, tmp_path / "state")
    assert again.everything() == before
    again.close()


def test_a_state_that_cannot_be_written_any_more_is_an_event(tmp_path: Path) -> None:
    files = tmp_path / "files"
    write(files, "n.json", node("n1"))
    rig = Rig(files, tmp_path / "state")
    assert rig.state is not None
    assert rig.state._file is not None
    with Path("/dev/full").open("wb", buffering=0) as full:
        kept, rig.state._file = rig.state._file, full.fileno()
        requests.cordon(rig.cluster, "n1", unschedulable=True)
        rig.state._file = kept
    (event,) = events_of(rig.cluster, str(rig.state.path), kind="File")
    assert event.reason == "StateNotSaved"
    requests.cordon(rig.cluster, "n1", unschedulable=False)
    assert event.count == 1
    rig.close()


def test_the_default_folder_depends_on_the_path_of_the_directory(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "cluster", tmp_path / "b" / "cluster"
    environment = {"XDG_STATE_HOME": "/state"}
    first = default_folder(one, environment)
    assert first.parent == Path("/state/evenhand/clusters")
    assert first.name.startswith("cluster-")
    assert first != default_folder(other, environment)
    assert first == default_folder(tmp_path / "a" / "x" / ".." / "cluster", environment)


def test_a_state_is_read_as_it_was_written() -> None:
    saved = Saved(
        {("Node", "", "n1"): node("n1"), ("Pod", "work", "p"): pod("p")},
        {("Node", "", "n1"): "00ff"},
        (7, 9),
        "/manifests",
    )
    text = list(map(line, records(saved)))
    assert fold(text) == saved
    gone = line({"gone": ["Pod", "work", "p"]})
    assert list(fold([*text, gone]).objects) == [("Node", "", "n1")]
    assert fold([*text, gone[:-1]]) == saved
    with pytest.raises(BadStateError, match="line 5"):
        fold([*text, b"{\n", gone])
    with pytest.raises(BadStateError, match="format 2 is not 1"):
        fold([line({"format": 2})])


@pytest.mark.parametrize("seed", range(5))
def test_a_file_that_is_cut_anywhere_is_a_state_that_was_there(seed: int, tmp_path: Path) -> None:
    """A process can be killed at any byte; what is read is then the state after some number of changes."""
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    files = tmp_path / "files"
    write(files, "n.json", node("n1"), workload("Deployment", "web", replicas=2))
    rig = Rig(files, tmp_path / "state")
    for _ in range(20):
        requests.scale(rig.cluster, ("Deployment", "work", "web"), chance.randrange(6))
        rig.cluster.step()
    assert rig.state is not None
    text = rig.state.path.read_bytes()
    rig.close()
    whole = text.splitlines(keepends=True)
    for _ in range(20):
        cut = text[: chance.randrange(len(text) + 1)]
        lines = cut.splitlines(keepends=True)
        assert fold(lines) == fold(whole[: cut.count(b"\n")])


def test_a_pod_keeps_its_reference_over_a_restart(tmp_path: Path) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    plain = pod("a")
    del plain["metadata"]["uid"]
    write(files, "p.json", node("n1"), plain)
    rig = Rig(files, state)
    (first,) = rig.cluster.pods()
    rig.close()
    again = Rig(files, state)
    (second,) = again.cluster.pods()
    assert again.cluster.ref_of(second) == rig.cluster.ref_of(first)
    assert again.cluster.ref_of(second) != ObjectRef("Pod", "work", "a")
    again.close()
