"""What a restarted core knows about the former configuration, from its decision log."""

import asyncio
from pathlib import Path

import grpc
import pytest

from evenhand.v1 import config_pb2, config_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from server.bootstrap import Exit, ServeOptions, serve
from server.record.entries import Applied
from server.record.previous import Previous, previous_configuration
from tests.record.test_log import write
from tests.record.values import decided

QUEUES = "partitions: [{name: default, queues: [{name: root, submitacl: '*'}]}]\n"
OTHER = QUEUES.replace("root, ", "root, queues: [{name: a}], ")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_the_last_configuration_of_the_log_counts(file: Path) -> None:
    assert previous_configuration(file) is None
    file.touch()
    assert previous_configuration(file) is None
    file.unlink()
    write(file, Applied("apply one", "1" * 64), Applied("apply two", "2" * 64), decided(1))
    assert previous_configuration(file) == Previous("2" * 64, "apply two")


def test_a_run_without_a_change_ended_as_it_started(file: Path) -> None:
    write(file, decided(1))
    assert previous_configuration(file) == Previous("", "")


def test_a_full_file_put_aside_is_looked_at_and_damage_is_passed_over(file: Path) -> None:
    write(file, Applied("apply one", "1" * 64))
    with file.open("ab") as log:
        log.write(b'{"at":1,"kind":"configuration"}\n{"at":2,"kind":"configuration","fac')
    assert previous_configuration(file) == Previous("1" * 64, "apply one")
    file.rename(file.with_name("log.0000000001"))
    file.touch()
    assert previous_configuration(file) == Previous("1" * 64, "apply one")


async def findings(
    options: ServeOptions, apply: str = ""
) -> tuple[list[inspect_pb2.Finding], inspect_pb2.ServerInfoResponse]:
    """Return the doctor's findings on a server's configuration, and the server's information.

    A text is applied before, when one is given.
    """
    where: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    task = asyncio.create_task(serve(options, ready=where.set_result, stop=stop))
    task.add_done_callback(lambda _: where.cancel())
    async with grpc.aio.insecure_channel(await where) as channel:
        if apply:
            configured = config_pb2_grpc.ConfigurationServiceStub(channel)
            await configured.Apply(config_pb2.ApplyRequest(yaml=apply, source="apply q.yaml"))
        stub = inspect_pb2_grpc.InspectServiceStub(channel)
        found = await stub.CheckConsistency(inspect_pb2.CheckConsistencyRequest())
        info = await stub.ServerInfo(inspect_pb2.ServerInfoRequest())
    stop.set()
    assert await task == Exit.DRAINED
    return [one for one in found.findings if one.subject == "configuration"], info


def forget(folder: Path) -> None:
    """Delete the kept configuration, as an earlier version kept none."""
    (folder / "log.configuration.json").unlink()


async def test_a_restart_says_that_what_was_applied_is_gone(file: Path, tmp_path: Path) -> None:
    config = tmp_path / "queues.yaml"
    config.write_text(QUEUES)
    options = ServeOptions("127.0.0.1:0", config_file=config, decision_log=file)
    assert (await findings(options))[0] == []
    told, applied = await findings(options, apply=OTHER)
    assert told == []
    forget(tmp_path)
    (found,), info = await findings(options)
    assert info.previous_config_digest == applied.config_digest != info.config_digest
    assert info.previous_config_source == "apply q.yaml"
    assert found.code == "configuration-replaced"
    assert found.severity == inspect_pb2.FINDING_SEVERITY_NOTE
    assert "(apply q.yaml), now" in found.message
    assert "(file queues.yaml) is in force" in found.message
    assert (await findings(options))[0] == []
    assert (await findings(options, apply=OTHER))[0] == []
    forget(tmp_path)
    assert (await findings(options, apply=OTHER))[0] == []


async def test_without_a_file_a_restarted_core_still_names_what_was_in_force(file: Path) -> None:
    options = ServeOptions("127.0.0.1:0", decision_log=file)
    _, applied = await findings(options, apply=OTHER)
    told, info = await findings(options)
    assert told == []
    assert info.previous_config_digest == applied.config_digest
