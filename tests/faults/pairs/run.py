"""A run: two cores that follow each other, two shims of which one is elected, kills and cut networks, and the evidence.

The cores exchange their input by calls, or through a log of NATS, whose server is then one more process that is killed.
"""

import asyncio
import json
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from server.record.verify import files_of, lines_of, verify
from server.replication.log import Access
from server.replication.log import address as log_address
from server.rpc import log_engine
from tests.cli.processes import finished
from tests.faults import counts
from tests.faults.children import free_port, now_ms
from tests.faults.counts import Counts
from tests.faults.evidence import log_parts
from tests.faults.journal import Journal, read
from tests.faults.kubernetes.truth import PROBE
from tests.faults.pairs import cluster
from tests.faults.pairs.api_server import ApiServer
from tests.faults.pairs.evidence import PairsEvidence
from tests.faults.pairs.observer import LEADER, Observer
from tests.faults.pairs.processes import (
    Child,
    core_command,
    shim_command,
    start_core,
    start_engine,
    start_shim,
)
from tests.faults.pairs.schedule import (
    ENDED,
    ENGINE,
    FOLLOWER,
    LEADING_CORE,
    LEADING_SHIM,
    STOPPED,
    WARM_SHIM,
    Cut,
    Kill,
)
from tests.faults.proxy import Proxy
from tests.kubernetes.fake_api import FakeApi, write_kubeconfig
from tests.replication.engine import Engine

CORES: Final = ("core-1", "core-2")
SHIMS: Final = ("shim-1", "shim-2")
API: Final = "api"
LOG: Final = "pairs"
"""The name of the log on NATS."""
WHOLE_S: Final = 120.0
"""The longest time, in seconds, until after a fault everything runs and the follower is level again."""
PLACED_S: Final = 60.0
"""The longest time, in seconds, that a run waits for a placement. The judge decides which waits are allowed."""
SETTLE_S: Final = 180.0
LOOK_S: Final = 0.05


@dataclass
class Run:
    """The processes of a run, the networks between them, and the API server, which is part of this process."""

    folder: Path
    seed: int
    durable: bool
    nats: bool = False
    """Whether the cores exchange their input through a log of NATS, and not by calls."""
    engine_port: int = 0
    pauses_ms: int = 0
    children: dict[str, Child] = field(default_factory=dict)
    """All processes that can be killed, by name."""
    observers: dict[str, Observer] = field(default_factory=dict)
    links: dict[str, Proxy] = field(default_factory=dict)
    """The networks, by the names of the client and of the server."""
    _later: set[asyncio.Task[None]] = field(default_factory=set)
    _parts: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder / "journal.jsonl")
        self.heard = self.folder / "heard.jsonl"
        dice = random.Random(f"{self.seed}/api")
        self.server = ApiServer(self.journal, dice)
        self.users = cluster.Users(self.server, random.Random(f"{self.seed}/users"))
        self._dice = random.Random(f"{self.seed}/run")
        counts.make(self.folder / "counts")
        self.counts = Counts(self.folder / "counts")

    async def evidence(self, turns: list[Kill | Cut]) -> PairsEvidence:
        """Run everything and return the evidence; all processes are ended, whatever happens."""
        async with AsyncExitStack() as stack:
            # The last callback waits until the connections that were cut have ended.
            stack.push_async_callback(asyncio.sleep, LOOK_S)
            await self._begin(stack)
            for turn in turns:
                self.journal.write("turn", **vars(turn))
                await (self._kill(turn) if isinstance(turn, Kill) else self._cut(turn))
            began = now_ms()
            settled = await self._settle()
            found = PairsEvidence(
                settled=settled, settling_ms=now_ms() - began, durable=self.durable
            )
            await self._ask_in_the_end(found)
        return self._collected(found)

    async def _begin(self, stack: AsyncExitStack) -> None:
        stack.callback(self.server.end)
        cluster.fill(self.server)
        ports = {name: free_port() for name in CORES}
        for shim in SHIMS:
            api = FakeApi(partial(self.server.answer, shim), keeps=False)
            server = await asyncio.start_server(api.serve, "127.0.0.1", 0)
            stack.callback(api.cut)
            stack.callback(server.close)
            await self._link(stack, shim, API, server.sockets[0].getsockname()[1])
        if self.nats:
            ports[ENGINE] = self.engine_port = self._add_engine()
        for client, there in self._pairs():
            await self._link(stack, client, there, ports[there])
        stack.push_async_callback(self._end_all)
        self._start(ports)
        for observer in self.observers.values():
            self._beside(stack, observer.run())
        if not await self._until(self.is_whole, 2 * WHOLE_S):
            raise TimeoutError(f"the run did not begin: {self._told()}")
        self._beside(stack, self._beat())
        self._beside(stack, self._quotas())

    def _start(self, ports: dict[str, int]) -> None:
        """Start all processes."""
        for core in CORES:
            self.children[core] = self._core(core, ports[core])
            self.observers[core] = Observer(core, ports[core], self.journal)
        for shim in SHIMS:
            self.children[shim] = self._shim(shim)
        for child in self.children.values():
            child.start()

    def _beside(self, stack: AsyncExitStack, part: Coroutine[Any, Any, None]) -> None:
        """Run a part of the run until its end. When the part fails, the run fails."""
        task = asyncio.create_task(part)
        self._parts.append(task)
        stack.callback(task.cancel)

    async def _link(self, stack: AsyncExitStack, client: str, there: str, port: int) -> None:
        proxy = Proxy(port, self.counts)
        server = await proxy.listen(0)
        stack.callback(proxy.end)
        stack.callback(server.close)
        self.links[f"{client} {there}"] = proxy

    def _pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of client and server among the processes."""
        pairs = [(shim, core) for shim in SHIMS for core in CORES]
        cores = [(core, ENGINE) for core in CORES] if self.nats else [CORES, CORES[::-1]]
        return pairs + cores

    def _add_engine(self) -> int:
        """Add a NATS server, which starts with the other processes, and return its port."""
        folder = self.folder / ENGINE
        folder.mkdir(exist_ok=True)
        engine = Engine(folder)
        start = partial(start_engine, engine.command, self._said(ENGINE))
        self.children[ENGINE] = Child(ENGINE, start, self.journal)
        return engine.port

    def _core(self, name: str, port: int) -> Child:
        if self.nats:
            way = "--log", f"nats://127.0.0.1:{self.links[f'{name} {ENGINE}'].port}/{LOG}"
        else:
            other = CORES[1 - CORES.index(name)]
            way = "--follow", f"127.0.0.1:{self.links[f'{name} {other}'].port}"
        command = core_command(self.folder / name, port, way, durable=self.durable)
        return Child(name, partial(start_core, command, self._said(name)), self.journal)

    def _shim(self, name: str) -> Child:
        kubeconfig = self.folder / f"{name}.kubeconfig"
        write_kubeconfig(kubeconfig, self.links[f"{name} {API}"].port)
        command = shim_command(
            name, kubeconfig, [self.links[f"{name} {core}"].port for core in CORES]
        )
        start = partial(start_shim, name, command, self.heard, self._said(name))
        return Child(name, start, self.journal)

    def _said(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    async def _beat(self) -> None:
        """Let users act, start processes that ended by themselves, and add up the time in which this process was not running."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(cluster.TURN_S)
            late_ms = int((time.monotonic() - before - cluster.TURN_S) * 1000)
            self.pauses_ms += late_ms if late_ms > cluster.TURN_S * 1000 else 0
            self.users.turn()
            for child in self.children.values():
                child.look()

    async def _quotas(self) -> None:
        """Lower the quota of `lent`, wait until it is enforced, and raise it again; until the run settles."""
        key = ("configmaps", cluster.HOME, "yunikorn-configs")
        number = 0
        full = partial(cluster.running_lent, self.server)
        while True:
            self.users.lend()
            await self._until(lambda: full() >= cluster.LENT_MAX, SETTLE_S)
            number += 1
            self.journal.write("lowered", run=number)
            self.server.patch(key, {"data": cluster.config_map(cluster.LENT_LOWERED)["data"]})
            await self._until(lambda: full() <= cluster.LENT_LOWERED, SETTLE_S)
            self.journal.write("enforced", run=number)
            self.server.patch(key, {"data": cluster.config_map(cluster.LENT_MAX)["data"]})
            await self._until(self._knows_no_timer, SETTLE_S)
            self.journal.write("raised", run=number)
            if self.users.is_settling:
                self.users.take_back()
                return

    def _knows_no_timer(self) -> bool:
        return not any(one.seen.due_ms for one in self.observers.values())

    async def _kill(self, kill: Kill) -> None:
        """Kill a process with a role; a new one starts later, or the stopped one continues later."""
        await asyncio.sleep(kill.pause_ms / 1000)
        if not kill.is_rash:
            await self._recovered()
        child = self.children[self._with_role(kill.role)]
        is_level = any(one.seen.level for one in self.observers.values())
        facts = {"name": child.name, "role": kill.role, "how": kill.how, "level": is_level}
        if not child.is_running:
            self.journal.write("missed", **facts)
            return
        self.journal.write("kill", **facts)
        deeds = [self._end(child, kill)]
        if kill.role in {LEADING_CORE, LEADING_SHIM, ENGINE}:
            deeds.append(self._progress(kill.role, kill.how, now_ms()))
        await asyncio.gather(*deeds)

    async def _end(self, child: Child, kill: Kill) -> None:
        """Stop a process or wait until it has ended; later it continues, or a new one starts."""
        if kill.how == STOPPED:
            child.pause()
        else:
            await child.end(kill.how)
        self._soon(self._bring_back(child, kill))

    async def _bring_back(self, child: Child, kill: Kill) -> None:
        await asyncio.sleep(kill.away_ms / 1000)
        if kill.how == STOPPED:
            child.resume()
        else:
            child.start()
        self.journal.write("back", name=child.name)

    def _soon(self, deed: Any) -> None:
        task = asyncio.create_task(deed)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _with_role(self, role: str) -> str:
        """Return the process with a role; when none has it, one that could have it."""
        leading = [name for name in CORES if self.observers[name].seen.state == LEADER]
        core = leading[0] if len(leading) == 1 else self._dice.choice(CORES)
        shim = self.server.holder or self._dice.choice(SHIMS)
        roles = {
            LEADING_CORE: core,
            FOLLOWER: CORES[1 - CORES.index(core)],
            LEADING_SHIM: shim,
            WARM_SHIM: SHIMS[1 - SHIMS.index(shim)],
            ENGINE: ENGINE,
        }
        return roles[role]

    async def _progress(self, role: str, how: str, began: int) -> None:
        """Create a probe, and record how long after an instant the probe has a node."""
        name = f"probe-{self.users.made + 1}"
        self.users.make("probe", {PROBE: "1"}, 200)
        pod = self.server.objects["pods", cluster.NAMESPACE, name]
        is_placed = await self._until(lambda: bool(pod["spec"].get("nodeName")), PLACED_S)
        self.journal.write(
            "progress", role=role, how=how, placed=is_placed, took_ms=now_ms() - began
        )

    async def _recovered(self) -> None:
        """Wait until everything runs and is level, and record how long that took."""
        began = now_ms()
        is_whole = await self._until(self.is_whole, WHOLE_S)
        self.journal.write("recovered", whole=is_whole, took_ms=now_ms() - began)

    def is_whole(self) -> bool:
        """Return whether all processes run, one core leads and the other is level, and a running shim holds the lease."""
        seen = [one.seen for one in self.observers.values()]
        return (
            all(child.is_running for child in self.children.values())
            and sorted(one.state for one in seen) == [FOLLOWER, LEADER]
            and any(one.level for one in seen)
            and bool(self.server.holder)
        )

    async def _cut(self, cut: Cut) -> None:
        """Part a network for a time; then wait until everything has recovered, and for a placement."""
        await asyncio.sleep(cut.pause_ms / 1000)
        await self._recovered()
        client, there = cut.link.split()
        parted = [(f"{client} {there}", cut.direction)]
        if (back := f"{there} {client}") in self.links:
            turned = {"there": "back", "back": "there"}
            parted.append((back, turned.get(cut.direction, "both")))
        before = self.counts.read()
        self.journal.write("cut", link=cut.link, direction=cut.direction, how=cut.how)
        for link, direction in parted:
            ways = ("there", "back") if direction == "both" else (direction,)
            self.links[link].hurt({f"{cut.how}_{way}": 1 for way in ways})
        await asyncio.sleep(cut.lasts_ms / 1000)
        for link, _ in parted:
            self.links[link].hurt({})
        pieces = (self.counts.read() - before)["pieces parted"]
        self.journal.write("healed", link=cut.link, pieces=pieces)
        await self._progress("network", cut.how, now_ms())
        await self._recovered()

    async def _settle(self) -> bool:
        """Let all pods be placed and end; return whether they did, and whether everything has recovered."""
        self.users.is_settling = True
        await asyncio.gather(*self._later)
        return await self._until(self._is_settled, SETTLE_S)

    def _is_settled(self) -> bool:
        return not self.server.pods() and self.is_whole()

    async def _ask_in_the_end(self, found: PairsEvidence) -> None:
        """Place a few pods that stay, and ask both cores."""
        self.users.is_over = True
        for _ in range(4):
            self.users.make("low", {"cpu": "1"}, 0)
        pods = self.server.pods
        await self._until(lambda: all(one["spec"].get("nodeName") for one in pods()), PLACED_S)
        found.api_says = {one["metadata"]["uid"]: one["spec"].get("nodeName", "") for one in pods()}
        await asyncio.gather(*(self._ask(found, core) for core in CORES))
        if self.nats:
            found.terms = await self._terms()

    async def _terms(self) -> list[str]:
        """Return the term of each message of the log."""
        log = Access(log_address(f"nats://127.0.0.1:{self.engine_port}/{LOG}"))
        link = await log_engine.connect(log, "judge")
        terms: list[str] = []
        try:
            tail = await link.tail()
            async with aclosing(link.read(tail.first - 1, WHOLE_S)) as messages:
                async for message in messages:
                    assert message is not None, "the log ended early"
                    terms.append(message.term)
                    if message.sequence >= tail.last:
                        return terms
        finally:
            await link.close()
        return terms

    async def _ask(self, found: PairsEvidence, core: str) -> None:
        """Ask a core for its allocations until they are the true ones, then for its doctor's findings and for its fail-overs."""
        await self._until(partial(self._agrees, found, core), WHOLE_S)
        for words in (("doctor",), ("history", "failovers")):
            said = await asyncio.to_thread(self._evenhand, core, *words)
            if said.returncode:
                found.complaints.append(f"{core} {' '.join(words)}: {said.stdout + said.stderr}")

    async def _agrees(self, found: PairsEvidence, core: str) -> bool:
        said = await asyncio.to_thread(self._evenhand, core, "allocations", "--output=json")
        listed = json.loads(said.stdout)["allocations"] if not said.returncode else []
        found.cores_say[core] = {one["allocation_key"]: one["node_id"] for one in listed}
        return found.cores_say[core] == found.api_says

    def _evenhand(self, core: str, *words: str) -> Any:
        return finished(*words, f"--core=127.0.0.1:{self.observers[core].port}")

    async def _until(self, condition: Callable[[], Any], seconds: float) -> bool:
        """Wait for a condition; return whether it held in time."""
        latest = time.monotonic() + seconds
        while True:
            for part in self._parts:
                if part.done() and not part.cancelled():
                    part.result()
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return True
            if time.monotonic() > latest:
                return False
            await asyncio.sleep(LOOK_S)

    async def _end_all(self) -> None:
        for task in self._later:
            task.cancel()
        for name in (*SHIMS, *CORES, ENGINE):
            if name in self.children:
                await self.children[name].end(ENDED)

    def _told(self) -> str:
        """Return the end of the output of each process."""
        return "\n".join(
            f"--- {name}\n{self._said(name).read_text(errors='replace')[-3_000:]}"
            for name in self.children
        )

    def _collected(self, found: PairsEvidence) -> PairsEvidence:
        found.journal = list(read(self.folder / "journal.jsonl"))
        found.heard = list(read(self.heard))
        found.pauses_ms = self.pauses_ms
        for core in CORES:
            files = files_of(self.folder / core / "decisions.jsonl")
            found.verified[core] = verify(files)
            found.log[core] = log_parts(line.written for line in lines_of(files))
        found.exits = [each for child in self.children.values() for each in child.exits]
        found.said = {name: self._said(name).read_text(errors="replace") for name in self.children}
        return found
