"""A pair of cores and one shim: the core that decides is killed, and the other one goes on with what it knew."""

import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli.processes import address_of, running, until
from tests.cli.run import evenhand
from tests.cli.test_cluster import said
from tests.cli.test_embedded_restart import bound, decisions, places
from tests.cli.test_followers import CLAIM, replication
from tests.cli.test_shim_ends import logged
from tests.effort import cases

KILLS = cases(3)
PODS = 16
EVICTED = 8


@dataclass
class Pair:
    """Two cores that follow each other."""

    folder: Path
    addresses: list[str]
    stack: ExitStack
    cores: dict[int, subprocess.Popen[str]] = field(default_factory=dict)
    starts: int = 0
    more: list[str] = field(default_factory=list)

    def start(self, number: int) -> None:
        """Start one of the two cores, with the state of its last run."""
        self.starts += 1
        state = self.folder / f"state-{number}"
        state.mkdir(exist_ok=True)
        log = self.folder / f"core-{number}-{self.starts}.log"
        own, other = self.addresses[number], self.addresses[1 - number]
        serve = ["serve", "--listen", own, "--follow", other, "--state-dir", str(state)]
        self.cores[number] = self.stack.enter_context(running([*serve, *self.more], log))
        address_of(self.cores[number], log)

    @property
    def both(self) -> str:
        """The addresses of both, as an option takes them."""
        return ",".join(self.addresses)

    def leader(self) -> int:
        """Return the number of the core that decides."""
        (found,) = [number for number in (0, 1) if self.state(number) == "leader"]
        return found

    def state(self, number: int) -> str:
        """Return whether a core leads or follows."""
        return str(replication("--core", self.addresses[number])["state"])

    def is_level(self, number: int) -> bool:
        """Return whether a core follows, and has what its leader is known to have."""
        found = replication("--core", self.addresses[number])
        level = found["position"] >= found["leader_position"] > 0
        return found["state"] == "follower" and bool(level)

    def kill(self, number: int) -> None:
        """Kill a core."""
        self.cores[number].kill()
        self.cores[number].wait()

    def take_over(self, killed: int, ids: list[str]) -> None:
        """Kill the core that decides, and wait until the other one decides and knows everything."""
        other = 1 - killed
        until(lambda: self.is_level(other))
        self.kill(killed)
        until(lambda: self.state(other) == "leader")
        until(lambda: len(places(self.addresses[other])) == PODS)
        assert decisions(self.addresses[other]) == ids

    def come_back(self, killed: int, ids: list[str]) -> None:
        """Start the killed core again, and wait until it follows and knows everything."""
        self.start(killed)
        until(lambda: self.state(killed) == "follower")
        until(lambda: decisions(self.addresses[killed]) == ids)


def test_a_pair_of_cores_survives_kills_of_whichever_decides(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    with ExitStack() as stack:
        addresses = [f"127.0.0.1:{unused_tcp_port_factory()}" for _ in range(2)]
        pair = Pair(tmp_path, addresses, stack)
        pair.start(0)
        pair.start(1)
        log, options = tmp_path / "shim.log", ["--state", str(tmp_path / "shim")]
        shim = ["shim", "--cluster", str(CLAIM), "--core", pair.both, *options]
        process = stack.enter_context(running([*shim, "--cluster-listen", "127.0.0.1:0"], log))
        at = said(process, "cluster commands at").split()[3]
        logged(log, "the core knows everything")
        until(lambda: len(decisions(pair.both)) == EVICTED and len(places(pair.both)) == PODS)
        before, ids = bound(at), decisions(pair.both)
        for _ in range(KILLS):
            killed = pair.leader()
            pair.take_over(killed, ids)
            assert bound(at) == before
            pair.come_back(killed, ids)
        assert evenhand("doctor", "--core", pair.both).code == 0
