"""A changed queues.yaml of a running embedded cluster: sent to the core, and said on the terminal and in an event."""

from pathlib import Path

from tests.cli.clusters import QUEUES, write_known
from tests.cli.processes import address_of, running, until
from tests.cli.run import evenhand
from tests.cli.test_cluster import said
from tests.cli.test_end_to_end import await_counts
from tests.cli.test_shim_ends import logged

RAISED = QUEUES.replace("max: {vcore: 24, memory: 64Gi}", "max: {vcore: 30, memory: 64Gi}")
BAD = QUEUES.replace("max: {vcore: 24, memory: 64Gi}", "max: {vcore: many, memory: 64Gi}")


def batch_max(core: str) -> int:
    """Return the max of the queue root.batch, in millicores."""
    root = evenhand("queues", "--core", core, "-o", "json").value()["root"]
    (batch,) = [one for one in root["children"] if one["name"] == "batch"]
    return int(batch["max"]["vcore"])


def test_changed_queues_come_into_force_and_outlive_the_core(tmp_path: Path) -> None:
    cluster = write_known(tmp_path / "cluster")
    file, log = cluster / "queues.yaml", tmp_path / "shim.log"
    with running(["serve", "--listen", "127.0.0.1:0"], tmp_path / "serve.log") as core:
        address = address_of(core, tmp_path / "serve.log")
        shim = ["shim", "--cluster", str(cluster), "--core", address]
        with running([*shim, "--cluster-listen", "127.0.0.1:0"], log) as process:
            at = said(process, "cluster commands at").split()[3]
            await_counts(address, allocations=44, waiting_asks=18)
            file.write_text(RAISED)
            await_counts(address, allocations=50, waiting_asks=12)
            file.write_text(BAD)
            assert logged(log, "the core refused the queues")["level"] == "warning"
            events = evenhand("cluster", "events", "--warnings", "--address", at, "-o", "json")
            (event,) = [
                one for one in events.value()["events"] if one["about"]["name"] == file.name
            ]
            assert event["reason"] == "ConfigurationRefused"
            assert "line 17" in event["message"]
            assert "many" in event["message"]
            assert batch_max(address) == 30_000
            core.kill()
            core.wait()
            again = ["serve", "--listen", address]
            with running(again, tmp_path / "again.log") as second:
                assert address_of(second, tmp_path / "again.log") == address
                await_counts(address, allocations=50, waiting_asks=12)
                assert batch_max(address) == 30_000
                file.write_text(QUEUES)
                until(lambda: batch_max(address) == 24_000)
                await_counts(address, allocations=50, waiting_asks=12)
