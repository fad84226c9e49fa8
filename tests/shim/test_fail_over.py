"""A shim whose core is killed, or hands over, while pods arrive: each pod is bound once, and a hand-over repeats no report."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from itertools import count

from shim_client.bootstrap import make_shim, run_shim
from shim_client.core_client.address import CoreAddress
from shim_client.shim import Shim
from tests.effort import cases
from tests.shim.cores import Cores, two_cores
from tests.shim.objects import node, pod
from tests.shim.polling import until
from tests.shim.rig import SETTINGS, WatchedCluster, own, waiting

PODS_MAX = 60
WAITING_MAX = 20
ENDS = cases(3)
LEVEL_S = 60


async def arrive(cluster: WatchedCluster) -> None:
    """Create a pod every few milliseconds unless many wait, and delete the oldest bound ones, until cancelled."""
    numbers = count()
    while True:
        if len(waiting(cluster)) < WAITING_MAX:
            cluster.create(pod(f"p{next(numbers)}", cpu="100m"))
        bound = [item for item in own(cluster) if item["spec"].get("nodeName")]
        if len(bound) > PODS_MAX:
            cluster.delete("Pod", ("work", bound[0]["metadata"]["name"]))
        await asyncio.sleep(0.01)


def _more(cluster: WatchedCluster, count: int) -> Callable[[], bool]:
    """Return the condition that ``count`` more pods have been bound than now."""
    wanted = len(cluster.bindings) + count
    return lambda: len(cluster.bindings) >= wanted


End = Callable[[Cores, int], Awaitable[None]]


def by(sign: int) -> End:
    """Return the function that ends a core with a signal, and starts it again."""

    async def end(cores: Cores, number: int) -> None:
        cores.send(number, sign)
        await cores.restart(number)

    return end


async def ended(end: End) -> tuple[WatchedCluster, Shim]:
    """End the core that leads some times while pods arrive, and return the cluster and the shim when nothing waits."""
    cluster = WatchedCluster()
    for number in range(4):
        cluster.create(node(f"n{number}"))
    async with two_cores() as cores:
        shim = make_shim(cluster, [CoreAddress(one) for one in cores.addresses], SETTINGS)
        work = asyncio.create_task(run_shim(shim, cluster))
        try:
            arriving = asyncio.create_task(arrive(cluster))
            for _ in range(ENDS):
                await end(cores, await cores.leader(LEVEL_S))
                await until(_more(cluster, 20))
            arriving.cancel()
            await until(lambda: not waiting(cluster) and shim.progress().is_settled)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    return cluster, shim


async def test_pods_are_bound_once_while_cores_are_killed() -> None:
    cluster, _ = await ended(by(signal.SIGKILL))
    assert set(cluster.bindings.values()) == {1}


async def test_a_core_that_ends_in_order_hands_its_session_over() -> None:
    cluster, shim = await ended(by(signal.SIGTERM))
    assert set(cluster.bindings.values()) == {1}
    assert shim.progress().sessions == 1


async def test_a_core_that_hands_over_follows_the_next_one_and_gets_the_session_back() -> None:
    cluster, shim = await ended(Cores.hand_over)
    assert set(cluster.bindings.values()) == {1}
    assert shim.progress().sessions == 1
