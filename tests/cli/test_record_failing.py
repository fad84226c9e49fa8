"""A record that cannot be written: the doctor reports it with advice, and scheduling continues."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.clusters import write_known
from tests.cli.processes import ROOT, SECONDS_MAX, address_of, environment, finished, running
from tests.cli.run import evenhand

LOOKS_MAX = 300
NARROW = ("sh", "-c", 'ulimit -f 8; exec "$@"', "sh")
"""Files of what runs below it end after 4 KiB, as on a full disk."""


def test_the_doctor_says_that_a_trace_is_not_written(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    log = tmp_path / "serve.log"
    log.touch()
    with subprocess.Popen(
        [
            *NARROW,
            *(sys.executable, "-m", "evenhand_cli", "serve", "--listen", "127.0.0.1:0"),
            *("--trace", str(tmp_path / "trace.jsonl")),
        ],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            address = address_of(process, log)
            shim = ["shim", "--cluster", str(cluster), "--core", address]
            with running(shim, tmp_path / "shim.log"):
                found = _finding(address)
                assert (found["subject"], found["severity"]) == ("trace", "warning")
                assert "scheduling goes on" in found["advice"]
                partition = evenhand("partitions", "--core", address, "-o", "json").value()
                assert partition["partitions"][0]["counts"]["allocations"] == 44
                shown = evenhand("doctor", "--core", address).out
                assert "[record-failing]" in shown
                assert "Free space on its disk" in shown
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS_MAX)


def _finding(address: str) -> Any:
    """Poll until all is placed and the doctor has the finding, with a limit on the number of looks; return it."""
    for _ in range(LOOKS_MAX):
        value = evenhand("doctor", "--core", address, "-o", "json").value()
        failing = [one for one in value["findings"] if one["code"] == "record-failing"]
        partitions = evenhand("partitions", "--core", address, "-o", "json").value()["partitions"]
        if failing and partitions and partitions[0]["counts"]["allocations"] == 44:
            return failing[0]
        time.sleep(0.1)  # Between two looks; the number of looks is the limit.
    raise AssertionError("the doctor never said it")


@pytest.mark.parametrize("options", [[], ["--durable"]])
def test_a_start_that_fails_says_why_and_nothing_else(tmp_path: Path, options: list[str]) -> None:
    where = ["--listen", "127.0.0.1:0", "--decision-log", str(tmp_path)]
    ended = finished("serve", *where, *options)
    assert ended.returncode == 2
    assert [line.partition(":")[0] for line in problems(ended.stderr)] == ["error", "do"]


def problems(said: str) -> list[str]:
    """Return the lines that are no records of the server's own log."""
    return [line for line in said.splitlines() if not line.startswith("{")]
