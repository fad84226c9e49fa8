"""The metrics of a shim for Prometheus: whether the shim leads, in which epoch, and for how long it surely holds the lease.

A thread of the Prometheus library serves the metrics in plain text on a separate port. The metrics contain no names
from the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from shim_client.probe import NoPortError


class Leading(NamedTuple):
    """The leadership of a shim: its epoch, and the seconds for which it surely holds the lease.

    Epoch and seconds are 0 if the shim does not lead.
    """

    epoch: int
    seconds_left: float


class _Gauges(Collector):
    def __init__(self, leading: Callable[[], Leading | None]) -> None:
        self._leading = leading

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the present metrics. A shim without an election always leads, and has no lease."""
        found = self._leading()
        leads = found is None or found.seconds_left > 0
        yield _gauge("leader", "1 while this shim leads, else 0", int(leads))
        if found is not None:
            yield _gauge(
                "epoch", "Epoch in which this shim leads, 0 while it does not", found.epoch
            )
            left = "Seconds for which this shim may surely act, 0 while it does not lead"
            yield _gauge("lease_seconds_left", left, found.seconds_left)


def _gauge(name: str, description: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"evenhand_shim_{name}", description, value=value)


@contextmanager
def served(address: str, leading: Callable[[], Leading | None]) -> Iterator[int]:
    """Serve metrics at HOST:PORT while the block runs, and provide the port.

    Raises NoPortError if the port cannot be opened.

    ``leading`` is called in another thread for each request. ``leading`` returns None for a shim without an election.
    """
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    registry.register(_Gauges(leading))
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except (OSError, OverflowError) as error:
        raise NoPortError(f"no metrics at {address}: {error}") from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
