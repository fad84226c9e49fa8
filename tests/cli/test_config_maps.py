"""A ConfigMap or standard input in place of a queues.yaml, and warnings that are ignored by their code."""

import asyncio
import base64
import gzip
from pathlib import Path

import grpc
import pytest

from evenhand.v1 import config_pb2, config_pb2_grpc, inspect_pb2, simulate_pb2
from evenhand_cli.commands.serve import check_config
from server.bootstrap import Exit, ServeOptions, serve
from tests.cli.fake import FakeCore, running
from tests.cli.run import evenhand

QUEUES = """\
partitions:
  - name: default
    preemption: {policies: [required-node, job]}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: a, resources: {max: {vcore: 6}}}
"""
HEAD = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: yunikorn-configs}
data:
"""


def indented(text: str, blanks: int = 4) -> str:
    return "".join(f"{' ' * blanks}{line}\n" for line in text.splitlines())


def config_map(text: str = QUEUES, key: str = "queues.yaml", more: str = "") -> str:
    return f"{HEAD}{more}  {key}: |\n{indented(text)}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "map.yaml"


def check(file: Path, text: str, *options: str) -> tuple[int, str, str]:
    file.write_text(text)
    ended = evenhand("config", "check", str(file), *options)
    return ended.code, ended.out, ended.err


def test_a_setting_that_cannot_be_used_is_named(file: Path) -> None:
    code, out, _ = check(file, config_map(more="  service.volumeBindTimeout: ten minutes\n"))
    assert code == 0
    assert "service.volumeBindTimeout: 'ten minutes' is no duration" in out.replace("\n", " ")


def test_a_config_map_is_unwrapped(file: Path) -> None:
    code, out, _ = check(file, config_map())
    assert code == 0
    assert out.startswith("read queues.yaml of the ConfigMap yunikorn-configs")
    assert "[firm-not-broken]" in out


def test_an_error_points_into_the_file_of_the_config_map(file: Path) -> None:
    wrong = config_map(QUEUES.replace("vcore: 6", "vcore: 6.5"))
    file.write_text(wrong)
    ended = evenhand("config", "check", str(file), "-o", "json")
    (problem,) = [one for one in ended.value()["problems"] if one["severity"] == "error"]
    assert "6.5" in wrong.splitlines()[problem["line"] - 1]
    assert "6500m" in problem["message"]


def test_the_policy_group_names_the_key_and_other_texts_are_said_not_to_be_read(file: Path) -> None:
    more = "  service.policyGroup: gold\n  queues.yaml: ignored\n"
    code, out, _ = check(file, config_map(key="gold.yaml", more=more))
    assert code == 0
    assert "read gold.yaml" in out
    assert "not read: queues.yaml" in out
    code, _, err = check(file, config_map(key="other.yaml"))
    assert code == 1
    assert "no key queues.yaml" in err
    assert "it has other.yaml" in err


def test_a_setting_of_the_shim_is_checked(file: Path) -> None:
    code, _, err = check(file, config_map(more="  kubernetes.qps: fast\n"))
    assert code == 1
    assert "kubernetes.qps" in err


def test_the_second_of_both_config_maps_wins(file: Path) -> None:
    defaults = config_map("partitions: []").replace("yunikorn-configs", "yunikorn-defaults")
    items = "".join(f"- {indented(one, 2).lstrip()}" for one in (config_map(), defaults))
    code, out, _ = check(file, f"apiVersion: v1\nkind: List\nitems:\n{items}")
    assert code == 0, out
    assert "yunikorn-configs, which overrides yunikorn-defaults" in out
    code, out, _ = check(file, f"{defaults}---\n{config_map()}")
    assert code == 0, out
    two = config_map().replace("yunikorn-configs", "mine")
    code, _, err = check(file, f"{two}---\n{two}")
    assert code == 1
    assert "none is called yunikorn-defaults or yunikorn-configs" in err


def test_a_packed_text_is_read(file: Path) -> None:
    packed = base64.b64encode(gzip.compress(QUEUES.encode())).decode()
    text = f"{HEAD.replace('data:', 'binaryData:')}  queues.yaml.gz: {packed}\n"
    code, out, _ = check(file, text)
    assert code == 0
    assert f"{file} (queues.yaml):3: warning" in out.replace("\n", "")


def test_standard_input_is_read() -> None:
    read = evenhand("config", "check", "-", given=QUEUES)
    assert read.code == 0
    assert "standard input: good, with 1 warning" in read.out
    answer = config_pb2.ApplyResponse(applied=True, digest="f" * 64)
    with running(FakeCore(Apply=answer, ServerInfo=inspect_pb2.ServerInfoResponse())) as core:
        ended = evenhand("config", "apply", "-", "--core", core.address, given=config_map())
        assert ended.code == 0
        asked = core.requests[-1]
    assert asked == config_pb2.ApplyRequest(yaml=QUEUES, source="apply standard input")
    assert "It lasts until the core ends" in ended.out


def test_simulate_config_reads_a_config_map_from_standard_input() -> None:
    answer = simulate_pb2.SimulateConfigurationResponse(valid=True)
    with running(FakeCore(SimulateConfiguration=answer)) as core:
        ended = evenhand("simulate", "config", "-", "--core", core.address, given=config_map())
        assert ended.code == 0, ended.err
        asked = core.requests[-1]
    assert isinstance(asked, simulate_pb2.SimulateConfigurationRequest)
    assert asked.yaml == QUEUES


def started_text(file: Path) -> str:
    """Return the text that `serve --config` reads from a ConfigMap."""
    file.write_text(config_map())
    return check_config(file)


async def test_a_core_is_started_with_the_text_of_a_config_map(file: Path) -> None:
    text = started_text(file)
    where: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    options = ServeOptions("127.0.0.1:0", config_file=file, config_text=text)
    task = asyncio.create_task(serve(options, ready=where.set_result, stop=stop))
    async with grpc.aio.insecure_channel(await where) as channel:
        stub = config_pb2_grpc.ConfigurationServiceStub(channel)
        found = await stub.Get(config_pb2.GetRequest())
    stop.set()
    assert await task == Exit.DRAINED
    assert (found.yaml, found.source) == (QUEUES, "file map.yaml")


# Silenced warnings ----------------------------------------------------------------------------------------------

SILENT = QUEUES.replace(
    "    queues:\n      - name: root",
    "    ignorewarnings: [firm-not-broken]\n    queues:\n      - name: root",
)


def test_a_warning_is_silenced_in_the_file_and_counted(file: Path) -> None:
    code, out, _ = check(file, SILENT)
    assert code == 0
    assert "1 warning silenced: firm-not-broken (1)" in out
    assert out.replace("\n", "").endswith(f"{file}: good")
    value = evenhand("config", "check", str(file), "-o", "json").value()
    assert value["problems"] == []
    assert value["silenced"][0]["code"] == "firm-not-broken"


def test_a_warning_is_silenced_on_the_command_line(file: Path) -> None:
    _, out, _ = check(file, QUEUES, "--ignore", "firm-not-broken")
    assert "1 warning silenced: firm-not-broken (1)" in out


def test_a_code_that_does_not_exist_is_an_error(file: Path) -> None:
    code, out, _ = check(file, SILENT.replace("firm-not-broken", "firm-not-brokn"))
    assert code == 1
    assert "did you mean 'firm-not-broken'?" in " ".join(out.split())
    code, _, err = check(file, QUEUES, "--ignore", "firm")
    assert code == 2
    assert "no warning with the code 'firm'" in err
