"""All cases of `make bench` with their targets, which are for medians of five runs on two undisturbed processors.

The workloads of 20 shapes and those of the nearest peer have the full targets. For workloads with binpacking or
2,000 shapes, the targets are a third of these.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from server.model.quota import NodeSort
from tests.bench import (
    added,
    apart,
    beside,
    changed,
    console,
    growth,
    health,
    hostile,
    messages,
    preemption_messages,
    shim,
    spread,
    wire,
)
from tests.bench.clusters import Cluster
from tests.bench.figures import Basis, Case, Metric, Run
from tests.bench.script import Script
from tests.bench.workloads import Workload, hard, peers

SIZES = ((1_000, 10_000), (5_000, 50_000), (10_000, 100_000))
IN_PROCESS = {
    (1_000, 10): 100_000,
    (1_000, 100): 90_000,
    (5_000, 10): 80_000,
    (5_000, 100): 70_000,
    (10_000, 10): 70_000,
    (10_000, 100): 60_000,
}
"""Placements per second, by number of nodes and of leaves."""
GROWTH = (
    ((1_000, 10), (10_000, 10), 1.6),
    ((1_000, 100), (10_000, 100), 1.6),
    ((1_000, 10), (1_000, 100), 1.3),
    ((5_000, 10), (5_000, 100), 1.3),
    ((10_000, 10), (10_000, 100), 1.3),
)
"""Nodes and leaves of a small and a large workload, and the maximum ratio of the costs of a placement, large to small."""
ON_THE_WIRE = (
    (1_000, 10, 1, 8_000),
    (1_000, 10, 10, 0),
    (1_000, 10, 100, 60_000),
    (1_000, 10, 1_000, 0),
    (1_000, 100, 100, 55_000),
    (5_000, 10, 100, 50_000),
    (5_000, 100, 100, 45_000),
)
"""Number of nodes, of leaves and of asks in a message, and placements per second."""
HARD = ((1_000, 10), (1_000, 100), (1_000, 1_000), (5_000, 100), (5_000, 1_000), (10_000, 1_000))
CLAIMS_MS = {1_000: 1_000, 5_000: 3_000}
QUOTA_MS = {1_000: 45, 5_000: 225}
PLANNED = (
    ("one claim", "one claim", Cluster(5_000), 25),
    ("one claim", "one claim", Cluster(5_000, shapes=20), 25),
    ("a gang of 64", "gang", Cluster(5_000), 50),
    ("a gang of 64", "gang", Cluster(5_000, shapes=20), 50),
    ("a gang of 64, refused", "gang refused", Cluster(5_000, shapes=20), 50),
    ("one round", "one round", Cluster(5_000, claims=200), 250),
    ("one round", "one round", Cluster(5_000, shapes=20, claims=200), 250),
    ("one round", "one round", Cluster(5_000, shapes=20, claims=200, kinds=5), 250),
    ("deserved shares", "shares", Cluster(1_000, 1_000), 5),
)
"""The planned cases: name, measurement, cluster, and target in milliseconds."""
ALONE_MS, BESIDE_READERS_MS = 10, 50
"""The target in milliseconds for 99 of 100 asks, without and with readers."""
FIRST_VIEW_MS, UPDATE_MS = 300, 100
"""The targets in milliseconds for a page of the console that is asked for, and for an open page after a decision."""
LABEL_KEYS = ((500, 250), (1_000, 250), (10_000, 1_000))
"""Numbers of label keys of one tenant in one message, each with the target in milliseconds for the next tenant's ask."""
ASK_SIZES = (10_000, 250)
"""The number of different ask sizes in one message, and the target in milliseconds for the ask behind it."""
HEALTH_MS = 100
"""The target in milliseconds for the longest wait of a health check while asks of many sizes arrive."""
CHANGED_QUEUES = 10_000
"""The number of queues in use of each partition that a text changes."""
CHANGED_MS = 50
"""The target in milliseconds for the longest wait of an ask while a text is applied."""
PINNED = 20_000
"""Placements per second of asks that each name their own host."""
PROCESSES = {1: "one process", 2: "two processes"}
"""The numbers of processes over which four partitions are spread, in words."""
CHURN_ROUNDS = 100
CHURN_BATCH = 500
ADDED_TIMES = 1.1
"""The largest cost of a history, a follower, an epoch or open pages, as a multiple of the cost without it."""


def everything() -> list[Case]:
    """Return all cases in the order of the report."""
    return [
        *_placing(),
        *_growing(),
        *_churning(),
        _scrape(Workload(1_000, 10_000, 1_000)),
        *_on_the_wire(),
        *_beside_readers(Workload(5_000, 50_000, 100)),
        *_console(Workload(5_000, 50_000, 1_000), 3, 15, console.PAGES_OPEN),
        *_hostile(),
        *_changing(CHANGED_QUEUES),
        *_preempting(),
        *_preempting_on_the_wire(),
        *_shim(5_000, 20_000),
    ]


def quick() -> list[Case]:
    """Return one small case of each kind, for a test that every kind works."""
    small, few = Workload(20, 200, 10), Cluster(20, 2, claims=10)
    return [
        _place(peers(20, 200, 10)),
        _place(hard(40, 400, 10)),
        _grow(small, Workload(40, 400, 20), 0),
        _churn(Workload(50, 500, 10)),
        _scrape(Workload(50, 500, 10)),
        _flood(small, 1, 0),
        _flood(hard(40, 400, 10), 100, 0),
        _ping(small),
        _wire_churn(small, 20, 10),
        _resync(small),
        *(_spread(small, processes) for processes in PROCESSES),
        *_added(small, 20, 10),
        *islice(_beside_readers(small), 2),
        *_console(small, 1, 2, 12),
        _before_another(small, "label keys", hostile.label_keys, 20),
        *_checked(small, 20),
        _pinned(small, "node affinity", hostile.by_affinity),
        *islice(_changing(20), 5, 6),
        _preempt("1,000 claims", "claims", few, 0),
        _preempt("quota", "quota", few, 0),
        _wire_preempt("1,000 claims", few, preemption_messages.claims, 0),
        _wire_preempt("quota", few, preemption_messages.quota, 0),
        *_shim(100, 400),
    ]


# In process ---------------------------------------------------------------------------------------------------------


def _placing() -> Iterator[Case]:
    for make in (Workload, peers):
        for nodes, asks in SIZES:
            for leaves in (10, 100):
                yield _place(make(nodes, asks, leaves), IN_PROCESS[nodes, leaves])
    for nodes, asks in SIZES:
        for leaves in (10, 100):
            third = IN_PROCESS[nodes, leaves] / 3
            yield _place(Workload(nodes, asks, leaves, node_sort=NodeSort.BINPACKING), third)
            yield _place(Workload(nodes, asks, leaves, shapes=2_000), third)
    yield _place(Workload(1_000, 10_000, 1_000))
    for leaves in (10, 100, 1_000):
        yield _place(Workload(1_000, 10_000, leaves, by_weight=True))
    for nodes, leaves in HARD:
        yield _place(hard(nodes, 10 * nodes, leaves))


def _place(workload: Workload, target: float = 0) -> Case:
    metrics = (Metric("placements", "/s", target, more=True),)
    run = partial(apart.run, "place", workload)
    return Case(f"in process: {workload.name}", metrics, run, workload)


def _growing() -> Iterator[Case]:
    for small, large, times in GROWTH:
        one, other = (Workload(nodes, 10 * nodes, leaves) for nodes, leaves in (small, large))
        yield _grow(one, other, times)


def _grow(small: Workload, large: Workload, times: float) -> Case:
    one, other = (f"{each.nodes:,} nodes, {each.leaves:,} leaves" for each in (small, large))
    metrics = (Metric(growth.COST, "times", times, basis=Basis.PLAIN),)
    return Case(f"growth: {one} to {other}", metrics, partial(growth.grown, small, large), large)


def _churning() -> Iterator[Case]:
    yield _churn(Workload(1_000, 10_000, 100))
    yield _churn(hard(1_000, 10_000, 100))
    yield _churn(Workload(10_000, 100_000, 100), 50)


def _churn(workload: Workload, target_ms: float = 0) -> Case:
    metrics = (
        Metric("longest tick", "ms", target_ms, basis=Basis.VALUE),
        Metric("longest tick, CPU", "ms", basis=Basis.VALUE),
        Metric("a look at everything", "ms", basis=Basis.VALUE),
        Metric("placements", "/s", more=True),
    )
    run = partial(apart.run, "churn", workload)
    return Case(f"in process, churn: {workload.name}", metrics, run, workload)


def _scrape(workload: Workload) -> Case:
    """Return the case of a scrape of the metrics, with the waits of each queue, and with all lines of all histograms."""
    metrics = (
        Metric("scrape", "ms", basis=Basis.VALUE),
        Metric("series", "", basis=Basis.PLAIN),
        Metric("scrape, histograms full", "ms", basis=Basis.VALUE),
        Metric("series, histograms full", "", basis=Basis.PLAIN),
    )
    run = partial(apart.run, "scrape", workload)
    return Case(f"in process, scrape: {workload.name}", metrics, run, workload)


# Through gRPC -------------------------------------------------------------------------------------------------------


def _on_the_wire() -> Iterator[Case]:
    for nodes, leaves, batch, target in ON_THE_WIRE:
        yield _flood(Workload(nodes, 10 * nodes, leaves), batch, target)
    for leaves in (10, 100):
        yield _flood(peers(1_000, 10_000, leaves), 100, 0)
    yield _flood(hard(5_000, 50_000, 100), 100, 0)
    yield _ping(Workload(1_000, 1_000, 10))
    yield _wire_churn(Workload(5_000, 50_000, 100), CHURN_BATCH, CHURN_ROUNDS)
    yield _resync(Workload(5_000, 50_000, 10))
    for processes in PROCESSES:
        yield _spread(Workload(1_000, 10_000, 10), processes)
    yield from _added(Workload(5_000, 50_000, 100), CHURN_BATCH, CHURN_ROUNDS)


def _added(workload: Workload, batch: int, rounds: int) -> Iterator[Case]:
    """Yield the cases of a churn with a history, a follower, a log and an epoch, each compared with a core without it."""
    ratios = ("time", "CPU", "99 of 100 waits", "memory")
    metrics = (
        Metric("placements", "/s", more=True),
        Metric("99 of 100 waits", "ms", basis=Basis.VALUE),
        Metric("resident memory", "MiB", basis=Basis.PLAIN),
        *(
            Metric(f"{one}, with to without", "times", ADDED_TIMES, basis=Basis.PLAIN)
            for one in ratios
        ),
    )
    script = partial(messages.churn, workload, batch, rounds)
    for one in added.EVERYTHING.values():
        run = partial(added.compared, one, script, rounds * batch)
        yield Case(f"gRPC, churn with {one.name}: {workload.name}", metrics, run, workload)


def _spread(workload: Workload, processes: int) -> Case:
    metrics = (Metric("placements", "/s", more=True),)
    run = partial(spread.placing, workload, processes)
    name = f"gRPC, four partitions in {PROCESSES[processes]}: {workload.name} each"
    return Case(name, metrics, run, workload)


def _flood(workload: Workload, batch: int, target: float) -> Case:
    metrics = (Metric("placements", "/s", target, more=True),)
    name = f"gRPC, {batch:,} a message: {workload.name}"
    script = partial(messages.flood, workload, batch)
    return Case(name, metrics, partial(_play, script, workload.asks), workload)


def _ping(workload: Workload) -> Case:
    metrics = (
        Metric("median wait", "ms", 1, basis=Basis.VALUE),
        Metric("99 of 100 waits", "ms", 3, basis=Basis.VALUE),
    )
    run = partial(_play, partial(messages.ping, workload), workload.asks)
    return Case(f"gRPC, one ask at a time: {workload.name}", metrics, run, workload)


def _wire_churn(workload: Workload, batch: int, rounds: int) -> Case:
    metrics = (
        Metric("median wait", "ms", basis=Basis.VALUE),
        Metric("99 of 100 waits", "ms", basis=Basis.VALUE),
        Metric("placements", "/s", more=True),
    )
    run = partial(_play, partial(messages.churn, workload, batch, rounds), rounds * batch)
    return Case(f"gRPC, churn of {batch:,} a message: {workload.name}", metrics, run, workload)


def _resync(workload: Workload) -> Case:
    metrics = (
        Metric("time", "ms", 2_000),
        Metric("resident memory", "MiB", 200, basis=Basis.PLAIN),
    )
    run = partial(_play, partial(messages.resync, workload), 0)
    name = f"gRPC, resync: {workload.asks:,} running on {workload.nodes:,}"
    return Case(name, metrics, run, workload)


def _beside_readers(workload: Workload) -> Iterator[Case]:
    """Yield the cases of placements alone and together with each kind of reader."""
    yield _beside(workload, None, ALONE_MS)
    for readers in beside.everybody(workload):
        yield _beside(workload, readers, BESIDE_READERS_MS)


def _beside(workload: Workload, readers: beside.Readers | None, target_ms: float) -> Case:
    metrics = (
        Metric("median wait", "ms", basis=Basis.VALUE),
        Metric("99 of 100 waits", "ms", target_ms, basis=Basis.VALUE),
    )
    name = f"gRPC, {beside.RATE} asks a second, {readers.name if readers else 'no reader'}"
    run = partial(beside.placing, workload, readers)
    return Case(f"{name}: {workload.name}", metrics, run, workload)


def _console(workload: Workload, rounds: int, updates: int, pages: int) -> Iterator[Case]:
    """Yield the cases of a web console: first views, updates after decisions, and placements while pages are open."""
    views = [
        Metric(f"first view, {one}", "ms", FIRST_VIEW_MS, basis=Basis.VALUE)
        for one in console.PAGES
    ]
    run = partial(console.measured, workload, partial(console.first_views, rounds))
    yield Case(f"gRPC, console, first views: {workload.name}", tuple(views), run, workload)
    metrics = (
        Metric("median update", "ms", basis=Basis.VALUE),
        Metric("longest update", "ms", UPDATE_MS, basis=Basis.VALUE),
    )
    run = partial(console.measured, workload, partial(console.updates, updates))
    yield Case(f"gRPC, console, updates: {workload.name}", metrics, run, workload)
    at_follower = partial(run, cores=console.followed)
    name = f"gRPC, console, updates read at a follower: {workload.name}"
    yield Case(name, metrics, at_follower, workload)
    waits = ("median wait", "99 of 100 waits")
    beside_pages = (
        *(Metric(one, "ms", basis=Basis.VALUE) for one in waits),
        Metric(f"{waits[0]}, with to without", "times", basis=Basis.PLAIN),
        Metric(f"{waits[1]}, with to without", "times", ADDED_TIMES, basis=Basis.PLAIN),
    )
    run = partial(console.open_pages, workload, pages)
    name = f"gRPC, {beside.RATE} asks a second, {pages} open pages: {workload.name}"
    yield Case(name, beside_pages, run, workload)
    at_follower = partial(run, cores=partial(console.followed, last=True))
    name = (
        f"gRPC, {beside.RATE} asks a second, {pages} open pages read at a follower: {workload.name}"
    )
    yield Case(name, beside_pages, at_follower, workload)


def _hostile() -> Iterator[Case]:
    """Yield the cases of loads that must not delay other tenants."""
    for nodes in (1_000, 10_000):
        workload = Workload(nodes, nodes, 10)
        for keys, target in LABEL_KEYS:
            yield _before_another(workload, "label keys", hostile.label_keys, keys, target)
        yield _before_another(workload, "sizes", hostile.sizes, *ASK_SIZES)
    yield from _checked(Workload(1_000, 1_000, 10), ASK_SIZES[0])
    for how, pin in (
        ("node selector", hostile.by_selector),
        ("node affinity", hostile.by_affinity),
        ("node name", hostile.by_name),
    ):
        yield _pinned(Workload(1_000, 10_000, 10), how, pin)
    for text in hostile.texts():
        yield _beside(Workload(5_000, 50_000, 100), text, BESIDE_READERS_MS)


def _changing(queues: int) -> Iterator[Case]:
    """Yield the cases of placements while a text is applied, for each kind of change."""
    metrics = (
        Metric("99 of 100 waits", "ms", basis=Basis.VALUE),
        Metric("longest wait", "ms", CHANGED_MS, basis=Basis.VALUE),
    )
    for one in changed.kinds(queues):
        name = f"gRPC, {changed.RATE} asks a second, a text changes {queues:,} queues in use: {one.name}"
        yield Case(name, metrics, partial(changed.applied, one), one)


def _before_another(
    workload: Workload,
    of: str,
    make: Callable[[Workload, int], Script],
    many: int,
    target_ms: float = 0,
) -> Case:
    metrics = (Metric("time", "ms", target_ms),)
    run = partial(_play, partial(make, workload, many), 1)
    name = f"gRPC, {many:,} {of}, then another tenant: {workload.name}"
    return Case(name, metrics, run, workload)


def _checked(workload: Workload, sizes: int) -> Iterator[Case]:
    """Yield the cases of health checks while one tenant sends asks of many sizes, without and with readers."""
    lists = next(one for one in beside.everybody(workload) if one.method.endswith("/ListNodes"))
    metrics = (
        Metric("99 of 100 waits", "ms", basis=Basis.VALUE),
        Metric("longest wait", "ms", HEALTH_MS, basis=Basis.VALUE),
    )
    for readers in (None, lists):
        name = f"gRPC, health amid {sizes:,} sizes, {readers.name if readers else 'no reader'}"
        run = partial(health.checked, workload, sizes, readers)
        yield Case(f"{name}: {workload.name}", metrics, run, workload)


def _pinned(workload: Workload, how: str, pin: hostile.Pin) -> Case:
    metrics = (Metric("placements", "/s", PINNED, more=True),)
    run = partial(_play, partial(hostile.pinned, workload, pin), workload.asks)
    return Case(f"gRPC, each ask its own host by {how}: {workload.name}", metrics, run, workload)


def _play(make: Callable[[], Script], placed: int, before: Sequence[str]) -> Run:
    """Run a script that places `placed` asks against a server; a profiler's command can be put before the server's."""
    found = wire.run(make(), before=before)
    note = f"client in {found.language}: {found.client_share:.0%} of a core"
    cpu_s = found.played.server_cpu
    return Run(found.values(placed), cpu_s, found.server_mib, note, found.pace)


# Preemption ---------------------------------------------------------------------------------------------------------


def _preempting() -> Iterator[Case]:
    for nodes, target in CLAIMS_MS.items():
        for shapes in (1, 20):
            yield _preempt("1,000 claims", "claims", Cluster(nodes, shapes=shapes), target)
    for what, measure, cluster, target in PLANNED:
        yield _preempt(what, measure, cluster, target)
    for nodes, target in QUOTA_MS.items():
        for one in (Cluster(nodes, 1), Cluster(nodes, 100, applications=1), Cluster(nodes, 100)):
            yield _preempt("quota", "quota", one, target)


def _preempting_on_the_wire() -> Iterator[Case]:
    for nodes, target in CLAIMS_MS.items():
        yield _wire_preempt("1,000 claims", Cluster(nodes), preemption_messages.claims, target)
    for nodes, target in QUOTA_MS.items():
        for one, most in ((Cluster(nodes, 1), target), (Cluster(nodes, 100), 0)):
            yield _wire_preempt("quota", one, preemption_messages.quota, most)


def _preempt(what: str, measure: str, cluster: Cluster, target_ms: float) -> Case:
    metrics = (Metric("time", "ms", target_ms),)
    run = partial(apart.run, measure, cluster)
    return Case(f"in process, {what}: {cluster.name}", metrics, run, cluster)


def _wire_preempt(
    what: str, cluster: Cluster, make: Callable[[Cluster], Script], target_ms: float
) -> Case:
    metrics = (Metric("time", "ms", target_ms),)
    run = partial(_play, partial(make, cluster), 0)
    return Case(f"gRPC, {what}: {cluster.name}", metrics, run, cluster)


# The shim -----------------------------------------------------------------------------------------------------------


def _shim(bound: int, watched: int) -> Iterator[Case]:
    """Yield the cases of the shim's cost for pods: for pods that it binds, and for pods that it only watches."""
    cpu = (Metric("CPU a pod", "µs"),)
    yield Case(f"shim: {bound:,} pods until they run", cpu, partial(_bound, bound))
    memory = ("waiting, a pod", "running, a pod", "resident, a pod")
    metrics = tuple(Metric(name, "bytes", basis=Basis.PLAIN) for name in memory)
    yield Case(f"shim: {watched:,} pods watched", metrics, partial(_watched, watched))


def _bound(pods: int, before: Sequence[str]) -> Run:
    _is_not_profiled(before)
    found = shim.bound(pods)
    note = f"without the embedded cluster's own {found.cluster_us:,.0f} µs"
    return Run({"CPU a pod": found.shim_us}, found.shim_us * pods / 1e6, 0, note)


def _watched(pods: int, before: Sequence[str]) -> Run:
    _is_not_profiled(before)
    found = shim.watched(pods)
    values = {
        "waiting, a pod": found.waiting_bytes,
        "running, a pod": found.running_bytes,
        "resident, a pod": found.running_resident,
    }
    return Run(values, 0, 0)


def _is_not_profiled(before: Sequence[str]) -> None:
    if before:
        raise SystemExit(
            "the shim is measured in processes of its own: profile python -m tests.bench.shim"
        )
