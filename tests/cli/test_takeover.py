"""A pair of cores and one shim: the core that decides is killed, and the other one goes on with what it knew."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.clusters import write_known
from tests.cli.processes import address_of, running, until
from tests.cli.run import evenhand
from tests.cli.test_cluster import said
from tests.cli.test_embedded_restart import bound, decisions, places
from tests.cli.test_followers import CLAIM, replication
from tests.cli.test_shim_ends import logged

KILLS = 3


def state_of(address: str) -> str:
    """Return whether a core leads or follows."""
    return str(replication("--core", address)["state"])


def test_a_pair_of_cores_survives_kills_of_whichever_decides(
    tmp_path: Path, unused_tcp_port_factory: object
) -> None:
    ports = [unused_tcp_port_factory() for _ in range(2)]  # type: ignore[operator]
    addresses = [f"127.0.0.1:{port}" for port in ports]

    def core(number: int, turn: str) -> list[str]:
        other = addresses[1 - number]
        return ["serve", "--listen", addresses[number], "--follow", other, "--state-dir", folder(turn)]

    def folder(turn: str) -> str:
        made = tmp_path / f"state-{turn}"
        made.mkdir(exist_ok=True)
        return str(made)

    with ExitStack() as stack:
        cores = []
        for number in range(2):
            log = tmp_path / f"core-{number}.log"
            cores.append(stack.enter_context(running(core(number, str(number)), log)))
            address_of(cores[-1], log)
        both = ",".join(addresses)
        log = tmp_path / "shim.log"
        options = ["--state", str(tmp_path / "shim"), "--cluster-listen", "127.0.0.1:0"]
        process = stack.enter_context(
            running(["shim", "--cluster", str(CLAIM), "--core", both, *options], log)
        )
        at = said(process, "cluster commands at").split()[3]
        logged(log, "the core knows everything")
        until(lambda: len(decisions(both)) == 8 and len(places(both)) == 16)
        before = bound(at)
        ids = decisions(both)
        for turn in range(KILLS):
            leads = next(n for n in range(2) if state_of(addresses[n]) == "leader")
            follows = 1 - leads
            until(lambda: _is_level(addresses[follows]))
            cores[leads].kill()
            cores[leads].wait()
            until(lambda: state_of(addresses[follows]) == "leader")
            until(lambda: len(places(addresses[follows])) == 16)
            assert bound(at) == before
            assert decisions(addresses[follows]) == ids
            again = tmp_path / f"core-{leads}-{turn}.log"
            cores[leads] = stack.enter_context(running(core(leads, str(leads)), again))
            address_of(cores[leads], again)
            until(lambda: state_of(addresses[leads]) == "follower")
            until(lambda: decisions(addresses[leads]) == ids)
        assert evenhand("doctor", "--core", both).code == 0


def _is_level(address: str) -> bool:
    found = replication("--core", address)
    return found["state"] == "follower" and bool(found["position"] >= found["leader_position"])
