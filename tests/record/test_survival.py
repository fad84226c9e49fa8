"""An applied configuration survives the end of a core; a changed file or ConfigMap overrides it (D10)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from subprocess import Popen
from typing import Any

import grpc
import pytest

from evenhand.v1 import config_pb2, config_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from server.bootstrap import Exit, ServeOptions, serve
from server.record import keeper
from server.record.keeper import NO_PLACE
from server.record.kept import read_kept, write_kept
from server.replication import saved
from si.v1 import si_pb2 as si
from si.v1 import si_pb2_grpc
from tests.cli.processes import address_of, finished, running
from tests.cli.run import evenhand
from tests.core.test_revisions import text
from tests.record.test_log import kinds


class Live:
    """A running core."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._configuration: Any = config_pb2_grpc.ConfigurationServiceStub(channel)
        self._inspect: Any = inspect_pb2_grpc.InspectServiceStub(channel)
        self._scheduler: Any = si_pb2_grpc.SchedulerStub(channel)

    async def apply(self, *leaves: str, **more: Any) -> config_pb2.ApplyResponse:
        request = config_pb2.ApplyRequest(yaml=text(*leaves), source="apply q.yaml", **more)
        answer = await self._configuration.Apply(request)
        assert isinstance(answer, config_pb2.ApplyResponse)
        return answer

    async def register(self, *leaves: str) -> None:
        request = si.RegisterResourceManagerRequest(rmID="rm", config=text(*leaves))
        await self._scheduler.RegisterResourceManager(request)

    async def in_force(self) -> tuple[str, int]:
        now = await self._configuration.Get(config_pb2.GetRequest())
        return now.yaml, now.revision

    async def info(self) -> Any:
        return await self._inspect.ServerInfo(inspect_pb2.ServerInfoRequest())

    async def findings(self) -> list[str]:
        found = await self._inspect.CheckConsistency(inspect_pb2.CheckConsistencyRequest())
        return [one.code for one in found.findings if one.subject == "configuration"]


@asynccontextmanager
async def started(**options: Any) -> AsyncIterator[Live]:
    """Hold a core from its start to its end."""
    where: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    served = ServeOptions("127.0.0.1:0", **options)
    task = asyncio.create_task(serve(served, ready=where.set_result, stop=stop))
    task.add_done_callback(lambda _: where.cancel())
    async with grpc.aio.insecure_channel(await where) as channel:
        yield Live(channel)
    stop.set()
    assert await task == Exit.DRAINED


@asynccontextmanager
async def changed_after_the_save(folder: Path) -> AsyncIterator[Live]:
    """Hold a core that has a changed map. Its saved state is that from before the change again at the end."""
    async with started(state_dir=folder) as live:
        await live.register("map")
    older = (folder / saved.NAME).read_bytes()
    async with started(state_dir=folder) as live:
        await live.register("map")
        assert (await live.apply("changed", rm_id="rm")).applied
        yield live
    (folder / saved.NAME).write_bytes(older)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "queues.yaml"
    file.write_text(text("file"))
    return file


def write(file: Path, written: str) -> None:
    file.write_text(written)


async def test_what_was_applied_is_in_force_after_a_restart(config: Path, tmp_path: Path) -> None:
    options = {"config_file": config, "decision_log": tmp_path / "log"}
    async with started(**options) as live:
        answer = await live.apply("applied")
        assert (answer.revision, answer.not_kept) == (2, "")
        assert (await live.info()).config_not_kept == ""
    async with started(**options) as live:
        assert await live.in_force() == (text("applied"), 2)
        info = await live.info()
        assert (info.config_source, info.config_applied_by) == ("apply q.yaml", "local")
        assert await live.findings() == ["configuration-kept"]
        assert (await live.apply("more")).revision == 3
        assert await live.findings() == []


async def test_a_changed_file_overrides_what_was_applied(config: Path, tmp_path: Path) -> None:
    options = {"config_file": config, "state_dir": tmp_path}
    async with started(**options) as live:
        await live.apply("applied")
    write(config, text("changed"))
    async with started(**options) as live:
        assert await live.in_force() == (text("changed"), 3)
        assert (await live.info()).config_source == "file queues.yaml"
        assert await live.findings() == ["configuration-replaced"]
    async with started(**options) as live:
        assert await live.in_force() == (text("changed"), 3)
        assert await live.findings() == []


async def test_a_file_that_show_wrote_is_the_revision_that_it_names(tmp_path: Path) -> None:
    async with started(state_dir=tmp_path) as live:
        digest = (await live.apply("applied")).digest
    shown = tmp_path / "shown.yaml"
    shown.write_text(f"# revision 2 {digest}\n{text('applied')}")
    async with started(state_dir=tmp_path, config_file=shown) as live:
        assert await live.in_force() == (text("applied"), 2)
        assert await live.findings() == []


async def test_a_changed_map_comes_into_force_although_the_saved_state_is_older(
    tmp_path: Path,
) -> None:
    async with changed_after_the_save(tmp_path):
        pass
    async with started(state_dir=tmp_path) as live:
        assert await live.in_force() == (text("changed"), 3)
        await live.register("map")
        assert await live.in_force() == (text("map"), 4)


async def test_a_map_that_was_overridden_stays_so_although_the_saved_state_is_older(
    tmp_path: Path,
) -> None:
    async with changed_after_the_save(tmp_path) as live:
        assert (await live.apply("map")).revision == 4
    async with started(state_dir=tmp_path) as live:
        await live.register("changed")
        assert await live.in_force() == (text("map"), 4)


async def test_a_shim_that_registers_again_undoes_nothing(tmp_path: Path) -> None:
    async with started(state_dir=tmp_path) as live:
        await live.register("map")
        assert await live.in_force() == (text("map"), 2)
        await live.apply("applied")
    async with started(state_dir=tmp_path) as live:
        assert await live.in_force() == (text("applied"), 3), "before anything registered"
        await live.register("map")
        assert await live.in_force() == (text("applied"), 3)
        assert not (await live.apply("map", rm_id="rm")).applied
        await live.register("changed")
        assert await live.in_force() == (text("changed"), 4)


async def test_a_trace_with_revisions_replays_byte_for_byte(config: Path, tmp_path: Path) -> None:
    trace, log = tmp_path / "trace", tmp_path / "log"
    for turn in range(2):
        async with started(config_file=config, decision_log=log, trace=trace) as live:
            assert (await live.apply(f"seen{turn}", rm_id="rm")).applied
            base = (await live.in_force())[1]
            await live.apply(f"turn{turn}", base_revision=base)
            with pytest.raises(grpc.aio.AioRpcError, match="made from revision"):
                await live.apply("stale", base_revision=base)
            await live.register("map")
            assert (await live.apply(f"map{turn}", rm_id="rm")).applied
            await live.apply("last")
            assert not (await live.apply(f"map{turn}", rm_id="rm")).applied
        ended = evenhand("replay", str(trace), "--compare", str(log), "-o", "json")
        assert ended.code == 0, ended.out + ended.err
    assert kinds(log) == ["started", *4 * ["configuration"], "ended"] * 2
    assert evenhand("log", "verify", str(log)).code == 0


async def test_without_a_place_it_is_said_that_nothing_is_kept(config: Path) -> None:
    async with started(config_file=config) as live:
        assert await live.findings() == []
        answer = await live.apply("applied")
        assert (answer.applied, answer.not_kept) == (True, NO_PLACE)
        assert (await live.info()).config_not_kept == NO_PLACE
        assert await live.findings() == ["configuration-not-kept"]


async def test_a_full_disk_is_said_and_the_apply_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with started(state_dir=tmp_path) as live:
        monkeypatch.setattr(keeper, "write_kept", full)
        answer = await live.apply("applied")
        assert answer.applied
        assert answer.not_kept == f"{tmp_path / 'configuration.json'}: no space left on device"
        assert await live.findings() == ["record-failing"]
        monkeypatch.undo()
        assert (await live.apply("more")).not_kept == ""
        assert await live.findings() == []
    found = read_kept(tmp_path / "configuration.json")
    assert found is not None
    assert found.text == text("more")


@pytest.mark.parametrize("damage", ["torn", "text"])
async def test_a_damaged_file_stops_the_start(tmp_path: Path, damage: str) -> None:
    async with started(state_dir=tmp_path) as live:
        await live.apply("applied")
    file = tmp_path / "configuration.json"
    written = file.read_text()
    file.write_text(written[:-20] if damage == "torn" else written.replace("applied", "changed"))
    said: list[str] = []
    options = ServeOptions("127.0.0.1:0", state_dir=tmp_path)
    assert await serve(options, ready=said.append, errors=said.append) == Exit.BAD_OPTIONS
    assert "is damaged" in said[0]
    assert "move it away" in said[0]


async def test_a_text_that_this_version_refuses_stops_the_start(tmp_path: Path) -> None:
    async with started(state_dir=tmp_path) as live:
        await live.apply("applied")
    file = tmp_path / "configuration.json"
    found = read_kept(file)
    assert found is not None
    write_kept(file, found._replace(text="partitions: 7\n"))
    said: list[str] = []
    options = ServeOptions("127.0.0.1:0", state_dir=tmp_path)
    assert await serve(options, ready=said.append, errors=said.append) == Exit.BAD_OPTIONS
    assert "this version cannot use the configuration that is kept there" in said[0]


async def test_two_cores_do_not_share_a_folder(tmp_path: Path) -> None:
    async with started(state_dir=tmp_path):
        said: list[str] = []
        options = ServeOptions("127.0.0.1:0", state_dir=tmp_path)
        assert await serve(options, ready=said.append, errors=said.append) == Exit.BAD_OPTIONS
    assert "another process keeps its configuration there" in said[0]


@pytest.mark.parametrize("place", ["--state-dir", "--decision-log"])
def test_d10_a_core_that_is_killed_has_what_was_applied_when_it_starts_again(
    config: Path, tmp_path: Path, place: str
) -> None:
    """Before, the older tree was in force after a kill and a registration, without a word."""
    kept = tmp_path / "kept"
    if place == "--state-dir":
        kept.mkdir()
    options = ["serve", "--config", str(config), "--listen", "127.0.0.1:0", place, str(kept)]
    new = tmp_path / "new.yaml"
    new.write_text(text("file", "applied"))
    with running(options, tmp_path / "first") as process:
        address = address_of(process, tmp_path / "first")
        ended = evenhand("config", "apply", str(new), "--core", address)
        assert ended.code == 0, ended.out + ended.err
        assert "A core that is started again has it" in ended.out
        process.kill()
    with running(options, tmp_path / "second") as process:
        address = address_of(process, tmp_path / "second")
        shown = finished("config", "show", "--core", address)
        assert shown.stdout.startswith("# revision 2 ")
        assert shown.stdout.endswith(text("file", "applied"))
        told = finished("doctor", "--core", address).stdout
        assert "was applied after file queues.yaml" in " ".join(told.split())


def test_no_kill_loses_an_apply_that_was_answered(tmp_path: Path) -> None:
    """Applies without a pause, until the core is killed in the midst of one."""
    options = ["serve", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path)]
    answered, chance = 1, Random(11)
    for life in range(4):
        with running(options, tmp_path / "log") as process:
            address = address_of(process, tmp_path / "log")
            with grpc.insecure_channel(address) as channel:
                stub: Any = config_pb2_grpc.ConfigurationServiceStub(channel)
                now = stub.Get(config_pb2.GetRequest()).revision
                assert now in {answered, answered + 1}, "the last one had no answer"
                answered = apply_until_killed(stub, process, chance.randint(5, 60), f"life{life}")


def apply_until_killed(stub: Any, process: Popen[str], most: int, name: str) -> int:
    """Return the revision of the last apply that was answered."""
    answered = 0
    for number in range(most):
        request = config_pb2.ApplyRequest(yaml=text(f"{name}n{number}"))
        answer = stub.Apply(request)
        assert not answer.not_kept
        answered = answer.revision
    last = stub.Apply.future(config_pb2.ApplyRequest(yaml=text(f"{name}last")))
    process.kill()
    with suppress(grpc.RpcError):
        answered = last.result().revision
    return int(answered)
