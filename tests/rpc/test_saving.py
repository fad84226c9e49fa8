"""The saving of a core's state, and of a follower's soon after it has joined; the numbers of restored revisions (design 7.3)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from server.core.core import Core
from server.core.events.configuration import past
from server.model.events import ConfigurationApplied
from server.model.revisions import Base, Revision
from server.record.keeper import Keeper
from server.record.kept import Kept, kept_file, read_kept, write_kept
from server.record.recording import at_once
from server.replication import saved
from server.replication.feed import Feed
from server.rpc import saving as saving_module
from server.rpc.following import Joining, Replica, State
from server.rpc.reads import InPlace
from server.rpc.saving import Saving, restore
from server.startup.configuration import Begun, begun, chosen
from server.startup.state import replica
from tests.core.test_revisions import made, text
from tests.rpc.harness import serving, until
from tests.rpc.test_following import in_state, place
from tests.ticks import ticked


@pytest.fixture(autouse=True)
def _rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no state be saved only because time has passed."""
    monkeypatch.setattr(saving_module, "SAVE_S", 3_600.0)


@asynccontextmanager
async def saving(saver: Saving) -> AsyncIterator[None]:
    """Run a saver."""
    task = asyncio.create_task(saver.run())
    yield
    task.cancel()
    await asyncio.wait({task})


def position(path: Path) -> int:
    """Return the position of the saved state, or -1 if none is saved."""
    header = saved.read(path).header
    return -1 if header is None else header.position


def is_saved(path: Path, at: int) -> bool:
    """Return whether the state of this position is saved."""
    return position(path) == at


async def test_a_follower_saves_the_state_with_which_it_joined(tmp_path: Path) -> None:
    path = tmp_path / saved.NAME
    async with serving() as leader:
        await place(await leader.ready(), "before")
        async with serving(leaders=(f"127.0.0.1:{leader.port}",)) as follower:
            endpoint = follower.endpoint
            async with saving(Saving(path, endpoint.feed, endpoint.reads, endpoint.replica)):
                await in_state(follower, State.FOLLOWER)
                await until(path.exists)
                found = saved.read(path).core
                assert found is not None
                assert found.digest() == follower.core.digest() == leader.core.digest()
                assert endpoint.replica.joined == 1


async def test_a_core_saves_soon_after_its_manager_has_reported_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A core that is killed within `SAVE_S` of each of its starts keeps waiting times and timers as well."""
    monkeypatch.setattr(saving_module, "LOOK_S", 0.01)
    path = tmp_path / saved.NAME
    async with serving() as leader:
        endpoint = leader.endpoint
        async with saving(Saving(path, endpoint.feed, endpoint.reads, endpoint.replica)):
            await leader.register(explicitSync=True)
            await until(lambda: endpoint.feed.position > 0)
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert not path.exists(), "the manager has not reported everything yet"
            await place(await leader.ready(), "first")
            await until(path.exists)
            found = saved.read(path).core
            assert found is not None
            assert all(one.synced for one in found.state.managers.values())


async def test_joins_that_follow_each_other_save_once(tmp_path: Path) -> None:
    path, feed, replica = tmp_path / saved.NAME, Feed(Core(), "1"), Replica(("other",))

    async with saving(Saving(path, feed, InPlace(), replica)):
        await asyncio.sleep(0)
        assert position(path) == -1, "the core was given nothing yet"
        ticked(feed, 1, 1)
        replica.taken_over.set()
        await until(lambda: position(path) == 1)
        ticked(feed, 2, 1)
        replica.taken_over.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert position(path) == 1, "the state was saved a moment before"


async def test_a_state_that_changes_is_saved_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving_module, "SAVE_S", 0.01)
    path, feed = tmp_path / saved.NAME, Feed(Core(), "1")
    async with saving(Saving(path, feed, InPlace(), Replica())):
        for now in range(1, 4):
            ticked(feed, now, 1)
            await until(partial(is_saved, path, now))


async def test_a_state_that_changed_during_the_pause_is_saved_at_its_end(tmp_path: Path) -> None:
    path, feed = tmp_path / saved.NAME, Feed(Core(), "1")
    saver = Saving(path, feed, InPlace(), Replica())
    ticked(feed, 1, 1)
    async with saving(saver):
        await until(partial(is_saved, path, 1))


async def test_a_follower_keeps_the_configuration_with_which_it_joined(tmp_path: Path) -> None:
    """The leader may get nothing for a long time, and the state with its configuration is saved at once."""
    path, core = tmp_path / "configuration", Core()

    def kept() -> Kept:
        return Kept(core.state.revision, core.state.configuration.text, core.state.given)

    keeper = Keeper(path, lambda: (core.state.revision, core.state.given), kept, at_once)
    async with serving(core=Core(made("a"))) as leader:
        leaders = (f"127.0.0.1:{leader.port}",)
        async with serving(observers=(keeper,), core=core, leaders=leaders) as follower:
            await until(lambda: follower.endpoint.replica.joined == 1)
            found = read_kept(path)
            assert found is not None
            assert found.text == text("a")


@pytest.mark.parametrize(("leaf", "number"), [("b", 2), ("c", 3)])
def test_a_file_beside_a_newer_state_gets_no_number_of_an_earlier_revision(
    tmp_path: Path, leaf: str, number: int
) -> None:
    """The configuration of the earlier run was not kept, or was moved away."""
    path, before, file = tmp_path / saved.NAME, Core(made("a")), made(leaf)
    before.handle(ConfigurationApplied(made("b"), "test"), 1)
    before.state.given = {"rm": "1" * 64}
    saved.write(path, Feed(before, "v").checkpoint())
    again = Core(file)
    assert restore(path, Feed(again, "v"), again, file)
    assert past(again.state, Base(again.state.revision.number)) == file
    assert again.state.revision.number == number
    assert again.state.given == before.state.given


class Options(NamedTuple):
    """The options of a server that starts with a folder for its state, and perhaps with a configuration file."""

    state_dir: Path
    config_file: Path | None = None
    config_text: str | None = None
    assignment: None = None
    trace: None = None
    moved_from: None = None
    follow: Joining = Joining()


def kept_and_saved(folder: Path, kept: Revision, state: Core, file: str = "") -> Path:
    """Keep configuration `a` with this revision, save this state, and return the path of the kept configuration."""
    path = kept_file(folder, None)
    assert path is not None
    write_kept(path, Kept(kept, text("a"), {"rm": "1" * 64}, file))
    saved.write(folder / saved.NAME, Feed(state, "v").checkpoint())
    return path


def started(options: Options, path: Path) -> tuple[Core, Begun]:
    """Return the core of a server that starts with these options, and its beginning."""
    found = begun(options, path)
    core = Core(found.configuration, found.beginning)
    _, found = replica(options, Feed(core, "v"), core, found, "process")
    return core, found


@pytest.mark.parametrize("has_file", [False, True])
@pytest.mark.parametrize(
    ("kept", "state_wins"),
    [((1, 0), True), ((2, 4), True), ((2, 5), False), ((2, 6), False), ((3, 0), False)],
)
def test_of_a_kept_configuration_and_a_saved_state_the_newer_one_wins(
    tmp_path: Path,
    kept: tuple[int, int],
    state_wins: bool,  # noqa: FBT001
    has_file: bool,  # noqa: FBT001
) -> None:
    """The kept configuration is older than the state if its writes failed, and newer if the core was killed before a save."""
    number, at_ms = kept
    before = Core(made("a"))
    before.handle(ConfigurationApplied(made("b"), "by hand", by="ada"), 5)
    assert (before.state.revision.number, before.state.revision.at_ms) == (2, 5)
    file = None
    if has_file:
        file = tmp_path / "queues.yaml"
        file.write_text(text("a"))
    revision = Revision(number, made("a").digest, "by hand", "bob", at_ms)
    path = kept_and_saved(tmp_path, revision, before, made("a").digest if has_file else "")
    core, found = started(Options(tmp_path, file), path)
    assert core.state.configuration == made("b" if state_wins else "a")
    later = revision._replace(number=3)  # another text never gets the number of revision 2
    assert core.state.revision == (before.state.revision if state_wins else later)
    assert bool(found.note) is state_wins
    assert found.configuration == core.state.configuration
    reported = [one.code for one in chosen(core, found)()]
    assert reported == (["configuration-kept"] if state_wins else [])


def test_a_changed_file_wins_against_a_newer_state(tmp_path: Path) -> None:
    before = Core(made("a"))
    before.handle(ConfigurationApplied(made("b"), "by hand"), 5)
    (file := tmp_path / "queues.yaml").write_text(text("c"))
    path = kept_and_saved(tmp_path, Revision(1, made("a").digest), before, made("a").digest)
    core, found = started(Options(tmp_path, file), path)
    assert core.state.configuration == made("c")
    assert core.state.revision.number == 3
    assert found.is_file
