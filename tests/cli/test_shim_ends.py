"""The behaviour of `evenhand shim` without a core, and with a core whose partition belongs to another shim."""

import json
import time
from pathlib import Path
from typing import Any

from tests.cli.clusters import write_known
from tests.cli.processes import address_of, finished, running
from tests.cli.test_end_to_end import await_counts

LOOKS_MAX = 300
NOWHERE = "127.0.0.1:1"
OTHER_ID = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: yunikorn-configs, namespace: yunikorn}
data: {service.clusterId: second}
"""


def logged(log: Path, event: str) -> dict[str, Any]:
    """Return the first line of a log with this event, awaited with a limit on the number of looks."""
    for _ in range(LOOKS_MAX):
        lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
        found = [one for one in map(json.loads, lines) if one["event"] == event]
        if found:
            return dict(found[0])
        time.sleep(0.1)  # Between two looks; the number of looks is the limit.
    raise AssertionError(log.read_text())


def test_a_shim_without_a_core_says_so_at_once_and_waits(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    log = tmp_path / "shim.log"
    with running(["shim", "--cluster", str(cluster), "--core", NOWHERE], log) as shim:
        told = logged(log, "cannot reach the core")
        assert shim.poll() is None
    assert told["core"] == NOWHERE
    assert told["why"] == "nothing listens there (connection refused)"
    assert "evenhand serve" in told["do"]
    assert "DEADLINE_EXCEEDED" not in log.read_text()


def test_a_shim_says_that_others_can_read_its_token(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    log, token = tmp_path / "shim.log", tmp_path / "token"
    token.write_text("shim-0123456789abcdef")
    token.chmod(0o644)
    options = ["--cluster", str(cluster), "--core", NOWHERE, "--token-file", str(token)]
    with running(["shim", *options], log):
        told = logged(log, "file-open-to-others")
    assert told["level"] == "warning"
    assert str(token) in told["problem"]


def test_a_shim_that_is_not_to_wait_ends_as_every_command_does(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    shim = ("shim", "--cluster", str(cluster), "--cluster-listen", "127.0.0.1:0")
    ended = finished(*shim, "--core", NOWHERE, "--no-wait")
    look = finished("queues", "--core", NOWHERE)
    assert ended.returncode == look.returncode == 3
    assert ended.stderr == look.stderr
    assert ended.stderr.startswith(f"error: cannot reach the core at {NOWHERE}")


def test_a_shim_whose_partition_belongs_to_another_ends_and_says_whose(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    second = write_known(tmp_path / "second")
    (second / "id.yaml").write_text(OTHER_ID)
    with running(["serve", "--listen", "127.0.0.1:0"], tmp_path / "serve.log") as process:
        address = address_of(process, tmp_path / "serve.log")
        shim = ["shim", "--cluster", str(cluster), "--core", address]
        with running(shim, tmp_path / "first.log") as first:
            await_counts(address, allocations=44)
            ended = finished("shim", "--cluster", str(second), "--core", address)
            assert first.poll() is None
            await_counts(address, allocations=44)
    assert ended.returncode == 1
    assert "error: partition 'default' belongs to resource manager 'evenhand'" in ended.stderr
    assert "service.clusterId" in ended.stderr
    assert "Traceback" not in ended.stderr
