"""The shim as a process that works with a real API server: the process reads settings from ConfigMaps, serves health, and runs the shim.

This module needs the packages of the extra `kubernetes`. For this reason no other module of `shim_client` imports it.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import structlog
from lightkube.config.kubeconfig import SingleConfig
from structlog.typing import FilteringBoundLogger

from shim_client.bootstrap import (
    elapsed_clock,
    make_shim,
    process_name,
    run_elected,
    run_shim,
    wall_clock,
)
from shim_client.cluster import ClusterError, KubeObject, ObjectRef, RecordEvent
from shim_client.config import BadSettingError, Settings, settings_from
from shim_client.core_client.address import CoreAddress
from shim_client.core_client.spread import CoreGroup
from shim_client.election.candidate import Candidate
from shim_client.election.elector import Elector
from shim_client.election.lease import Election, LeaseError
from shim_client.informers import listed
from shim_client.kubernetes.access import access_config, http_client
from shim_client.kubernetes.api import Api, Rate
from shim_client.kubernetes.cluster import KubernetesCluster
from shim_client.kubernetes.leases import KubernetesLease
from shim_client.metrics import Leading, served
from shim_client.probe import Probe
from shim_client.shim import Shim
from shim_client.translate.config_map import CONFIG_MAPS, merged

COLLECT_AFTER = 50_000
"""Number of new Python objects after which Python looks for garbage among the newest objects.

Python's default of 700 makes listing a large cluster take a quarter longer.
"""


@dataclass(frozen=True, slots=True)
class ShimOptions:
    """The cluster to join, and the settings of the command line, which override the settings of the cluster's ConfigMaps."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str = ""
    """Namespace of the ConfigMaps. If this text is empty, the namespace of the service account is used."""
    health: str = ""
    """HOST:PORT of the health service. If this text is empty, the process offers no health service."""
    metrics: str = ""
    """HOST:PORT of the metrics. If this text is empty, the process serves no metrics."""
    qps: int | None = None
    burst: int | None = None
    instance: str = ""
    """Name of this process, which is the name of its pod. A restart does not change this name."""
    wait: bool = True
    """Whether to wait for a core that does not answer yet."""
    election: Election | None = None
    """The lease by which one of several shims is elected. None means that this shim is the only one."""
    forget: bool = False
    """Whether the core first removes all objects of this cluster that were reported to it earlier."""


async def run_on_kubernetes(place: ShimOptions, *cores: CoreAddress | CoreGroup) -> None:
    """Run a shim until cancelled. If a group has several cores, the shim uses the first core that accepts the shim.

    Errors: NoAccessError, NoPortError, BadSettingError, and those of `run_shim`.
    """
    config = access_config(place.kubeconfig, place.context)
    namespace = place.namespace or config.namespace
    log: FilteringBoundLogger = structlog.get_logger("evenhand.shim")
    with _few_collections() as settle:
        async with _probe(place.health, log) as probe:
            log.info("joining a cluster", server=config.cluster.server, namespace=namespace)
            settings = await _settings(config, namespace, log)
            settings = replace(
                settings, qps=place.qps or settings.qps, burst=place.burst or settings.burst
            )
            rate = Rate(settings.qps, settings.burst)
            async with (
                _elector(place, config, namespace, log) as elector,
                _metrics(place.metrics, elector, log),
                _cluster(
                    config, namespace, rate, elector.seconds_left if elector else None
                ) as cluster,
            ):
                make = partial(make_shim, cluster, cores, settings, wait=place.wait)
                if elector is None:
                    shim = make(place.instance, forget=place.forget)
                    shim.on_live += [probe.say_ready, settle]
                    await run_shim(shim, cluster)
                    return

                forgets = [place.forget]  # in the first term alone

                def another() -> Shim:
                    gc.unfreeze()  # Python objects of an earlier term are not needed any more.
                    shim = make(elector.identity, forget=bool(forgets and forgets.pop()))
                    shim.leadership = elector
                    shim.on_warm.append(lambda: probe.say_ready(ready=True))
                    shim.on_live += [probe.say_ready, probe.say_leads, settle]
                    probe.say_ready(ready=False)
                    probe.say_leads(leads=False)
                    return shim

                await run_elected(another, elector, log)


@asynccontextmanager
async def _elector(
    place: ShimOptions, config: SingleConfig, namespace: str, log: FilteringBoundLogger
) -> AsyncIterator[Elector | None]:
    """Provide the elector of this shim, or None for a shim without an election."""
    election = place.election
    if election is None:
        yield None
        return
    where = election.namespace or namespace
    store = KubernetesLease(config, where, election.name, election.terms.renew, wall_clock())

    def missed(error: LeaseError) -> None:
        log.warning("the lease was not read or renewed", lease=election.name, why=str(error))

    identity = process_name(place.instance)
    log.info("standing for election", lease=f"{where}/{election.name}", identity=identity)
    try:
        yield Elector(store, Candidate(identity, election.terms), elapsed_clock(), missed)
    finally:
        await store.close()


@contextmanager
def _few_collections() -> Iterator[Callable[[bool], None]]:
    """Collect garbage seldom.

    Python objects that exist after the first sync are excluded: they are needed until the process ends.
    """
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER)

    def settle(live: bool) -> None:  # noqa: FBT001
        if live and not gc.get_freeze_count():
            gc.freeze()

    try:
        yield settle
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@asynccontextmanager
async def _probe(address: str, log: FilteringBoundLogger) -> AsyncIterator[Probe]:
    probe = Probe()
    if address:
        log.info("health", port=await probe.start(address))
    try:
        yield probe
    finally:
        await probe.stop()


@asynccontextmanager
async def _metrics(
    address: str, elector: Elector | None, log: FilteringBoundLogger
) -> AsyncIterator[None]:
    """Serve the metrics, if requested. Raises NoPortError if the port cannot be opened."""

    def leading() -> Leading | None:
        return None if elector is None else Leading(elector.epoch, elector.seconds_left())

    with ExitStack() as stack:
        if address:
            log.info("metrics", port=stack.enter_context(served(address, leading)))
        yield


@asynccontextmanager
async def _cluster(
    config: SingleConfig,
    namespace: str,
    rate: Rate,
    seconds_left: Callable[[], float] | None = None,
) -> AsyncIterator[KubernetesCluster]:
    api = Api(http_client(config), rate, seconds_left)
    cluster = KubernetesCluster(api, namespace, wall_clock())
    try:
        yield cluster
    finally:
        await cluster.close()


async def _settings(config: SingleConfig, namespace: str, log: FilteringBoundLogger) -> Settings:
    """Return the settings from the ConfigMaps, which are read before any other object.

    Raises BadSettingError, after an event on the ConfigMap was recorded.
    """

    def missed(kind: str, error: ClusterError) -> None:
        log.warning("the cluster did not tell", kind=kind, why=str(error))

    async with _cluster(config, namespace, Rate()) as cluster:
        listing = await listed(cluster, "ConfigMap", missed=missed)
        flat, _ = merged(listing.items)
        try:
            settings = settings_from(flat)
        except BadSettingError as bad:
            await cluster.record_event(_complaint(listing.items, namespace, str(bad)))
            raise
    return replace(settings, namespace=namespace)


def _complaint(found: Sequence[KubeObject], namespace: str, message: str) -> RecordEvent:
    by_name = {item["metadata"]["name"]: item for item in found}
    name = next((name for name in reversed(CONFIG_MAPS) if name in by_name), CONFIG_MAPS[-1])
    uid = by_name.get(name, {"metadata": {}})["metadata"].get("uid", "")
    about = ObjectRef("ConfigMap", namespace, name, uid)
    return RecordEvent(about, "ConfigurationRefused", message, warning=True)
