"""The gRPC service of an embedded cluster, for `evenhand cluster`.

The service listens on a separate port, on the loopback interface only. Every method carries out its request at once.
Before the method answers, it lets controllers and nodes work, so that the next request sees the result.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc

from evenhand.cluster.v1 import cluster_pb2 as pb
from evenhand.cluster.v1 import cluster_pb2_grpc as rpc
from shim_client.cluster import ConflictError, MissingError
from shim_client.embedded import requests
from shim_client.embedded.admission import InvalidError
from shim_client.embedded.checks import SETTINGS_LATER, has_settings, warnings
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.embedded.events import KeptEvent
from shim_client.embedded.loading import KINDS_IN_ORDER
from shim_client.embedded.saved import Id
from shim_client.embedded.store import key_of

DEFAULT_ADDRESS = "127.0.0.1:50052"
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
LAST_WORDS_SECONDS = 0.5
OUTCOMES = {
    requests.CREATED: pb.OUTCOME_CREATED,
    requests.CONFIGURED: pb.OUTCOME_CONFIGURED,
    requests.UNCHANGED: pb.OUTCOME_UNCHANGED,
}
Context = grpc.aio.ServicerContext[Any, Any]


class NoAddressError(Exception):
    """An address at which the service cannot listen; the message says why."""


class ClusterServicer(rpc.ClusterServiceServicer):
    """The requests of users, carried out on one embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    async def ApplyObjects(  # noqa: N802 - named by the file .proto
        self, request: pb.ApplyObjectsRequest, context: Context
    ) -> pb.ApplyObjectsResponse:
        """Create or change objects, beginning with the kinds on which other kinds depend."""
        del context
        results = {}
        for at in _in_order(request.manifests):
            results[at] = self._applied(request.manifests[at])
        self._cluster.step()
        return pb.ApplyObjectsResponse(results=[results[at] for at in sorted(results)])

    async def DeleteObjects(  # noqa: N802
        self, request: pb.DeleteObjectsRequest, context: Context
    ) -> pb.DeleteObjectsResponse:
        """Delete objects in the order of the request."""
        del context
        results = [self._deleted(one) for one in request.objects]
        self._cluster.step()
        return pb.DeleteObjectsResponse(results=results)

    async def ListObjects(  # noqa: N802
        self, request: pb.ListObjectsRequest, context: Context
    ) -> pb.ListObjectsResponse:
        """Return the objects of a kind."""
        if request.kind not in KINDS_IN_ORDER:
            why = f"an embedded cluster has no use for {request.kind!r:.80}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        self._cluster.step()
        found = [
            json.dumps(item)
            for item in self._cluster.store.all(request.kind)
            if request.namespace in ("", key_of(item)[0])
            and request.name in ("", item["metadata"]["name"])
        ]
        return pb.ListObjectsResponse(objects_json=found, taken_at_ms=self._cluster.now_ms())

    async def CordonNode(  # noqa: N802
        self, request: pb.CordonNodeRequest, context: Context
    ) -> pb.CordonNodeResponse:
        """Cordon a node, or uncordon the node."""
        async with _refusals(context):
            changed = requests.cordon(
                self._cluster, request.node, unschedulable=request.unschedulable
            )
            self._cluster.step()
            return pb.CordonNodeResponse(changed=changed)
        raise AssertionError("a refusal ends the call")

    async def DrainNode(  # noqa: N802
        self, request: pb.DrainNodeRequest, context: Context
    ) -> pb.DrainNodeResponse:
        """Drain a node."""
        async with _refusals(context):
            drained = await requests.drain(self._cluster, request.node, force=request.force)
            self._cluster.step()
            return pb.DrainNodeResponse(
                evicted=[_reference(("Pod", *key)) for key in drained.evicted],
                left=[
                    pb.LeftPod(
                        pod=_reference(("Pod", one.namespace, one.name)),
                        because=one.because,
                        may_stay=one.may_stay,
                        needs_force=one.needs_force,
                    )
                    for one in drained.left
                ],
            )
        raise AssertionError("a refusal ends the call")

    async def ScaleObject(  # noqa: N802
        self, request: pb.ScaleObjectRequest, context: Context
    ) -> pb.ScaleObjectResponse:
        """Scale a workload."""
        async with _refusals(context):
            before = requests.scale(self._cluster, _id(request.object), request.count)
            self._cluster.step()
            return pb.ScaleObjectResponse(before=before)
        raise AssertionError("a refusal ends the call")

    async def ListEvents(  # noqa: N802
        self, request: pb.ListEventsRequest, context: Context
    ) -> pb.ListEventsResponse:
        """Return events in the order of their last occurrence."""
        del context
        about = request.about
        found = [
            one
            for one in self._cluster.events.all()
            if about.kind in ("", one.about.kind)
            and about.namespace in ("", one.about.namespace)
            and about.name in ("", one.about.name)
            and (one.warning or not request.warnings_only)
        ]
        found.sort(key=lambda one: one.last_ms)
        latest = found[-request.limit :] if request.limit > 0 else found
        return pb.ListEventsResponse(events=map(_event, latest), taken_at_ms=self._cluster.now_ms())

    def _applied(self, manifest: pb.Manifest) -> pb.ObjectResult:
        """Carry out one manifest.

        A refusal is returned as a result.
        """
        item: Any = {}
        try:
            item = _parsed(manifest.json)
            outcome = OUTCOMES[requests.apply(self._cluster, item)]
        except (InvalidError, ConflictError) as bad:
            return pb.ObjectResult(
                object=_named(item), outcome=pb.OUTCOME_REFUSED, message=str(bad)
            )
        effects = [message for _, message in warnings(item, self._cluster.schedulers)]
        if outcome != pb.OUTCOME_UNCHANGED and has_settings(item):
            effects.append(SETTINGS_LATER)
        return pb.ObjectResult(object=_named(item), outcome=outcome, warnings=effects)

    def _deleted(self, one: pb.ObjectReference) -> pb.ObjectResult:
        of = _id(one)
        made = pb.ObjectResult(object=_reference(of), outcome=pb.OUTCOME_DELETED)
        try:
            requests.delete(self._cluster, of)
        except MissingError as missing:
            made.outcome, made.message = pb.OUTCOME_MISSING, str(missing)
        except ConflictError as refused:
            made.outcome, made.message = pb.OUTCOME_REFUSED, str(refused)
        return made


async def serve(cluster: EmbeddedCluster, server: grpc.aio.Server) -> None:
    """Answer requests until cancelled; `server` is a server that `listening` returned."""
    rpc.add_ClusterServiceServicer_to_server(ClusterServicer(cluster), server)
    await server.start()
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop(LAST_WORDS_SECONDS)


def listening(address: str) -> tuple[grpc.aio.Server, str]:
    """Return a server that listens at HOST:PORT, and the server's address.

    An event loop must run. Raises NoAddressError if the address cannot be used.
    """
    host = check_loopback(address)
    limits = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=limits)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise NoAddressError(f"cannot listen at {address}: another process uses it") from error
    return server, f"{host}:{port}"


def check_loopback(address: str) -> str:
    """Return the host of HOST:PORT.

    Raises NoAddressError when another machine could reach that address.
    """
    host, colon, port = address.rpartition(":")
    if not host or not colon or not port.isdecimal() or int(port) >= 1 << 16:
        raise NoAddressError(f"{address!r} is not HOST:PORT")
    if host != "localhost":
        try:
            is_local = ipaddress.ip_address(host.strip("[]")).is_loopback
        except ValueError:
            is_local = False
        if not is_local:
            raise NoAddressError(f"{host} is not the loopback: the service has no roles and no TLS")
    return host


@asynccontextmanager
async def _refusals(context: Context) -> AsyncIterator[None]:
    """End the call with a status when the cluster refuses the request."""
    try:
        yield
    except MissingError as missing:
        await context.abort(grpc.StatusCode.NOT_FOUND, str(missing))
    except ConflictError as refused:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refused))


def _parsed(text: str) -> dict[str, Any]:
    with _as_invalid():
        item = json.loads(text)
        if not isinstance(item, dict):
            raise InvalidError("this is no object")
        return item
    raise AssertionError("a mistake is raised")


@contextmanager
def _as_invalid() -> Iterator[None]:
    try:
        yield
    except (ValueError, RecursionError) as bad:
        raise InvalidError(f"the text is no JSON: {bad}") from bad


def _in_order(manifests: Any) -> list[int]:  # noqa: ANN401 - a repeated field
    """Return the positions of manifests, beginning with the kinds on which other kinds depend."""

    def rank(at: int) -> tuple[int, int]:
        try:
            kind = json.loads(manifests[at].json).get("kind")
        except (ValueError, AttributeError, RecursionError):
            kind = None
        known = kind if kind in KINDS_IN_ORDER else KINDS_IN_ORDER[-1]
        return KINDS_IN_ORDER.index(known), at

    return sorted(range(len(manifests)), key=rank)


def _named(item: Any) -> pb.ObjectReference:  # noqa: ANN401 - the value may have any form
    metadata = item.get("metadata") if isinstance(item, dict) else None
    fields = metadata if isinstance(metadata, dict) else {}
    kind = str(item.get("kind") or "")[:253] if isinstance(item, dict) else ""
    parts = (str(fields.get(key) or "")[:253] for key in ("namespace", "name"))
    return _reference(requests.id_for(kind, *parts))


def _id(one: pb.ObjectReference) -> Id:
    return requests.id_for(one.kind, one.namespace, one.name)


def _reference(of: Id) -> pb.ObjectReference:
    kind, namespace, name = of
    return pb.ObjectReference(kind=kind, namespace=namespace, name=name)


def _event(one: KeptEvent) -> pb.Event:
    return pb.Event(
        about=_reference((one.about.kind, one.about.namespace, one.about.name)),
        reason=one.reason,
        message=one.message,
        warning=one.warning,
        count=one.count,
        first_at_ms=one.first_ms,
        last_at_ms=one.last_ms,
    )
