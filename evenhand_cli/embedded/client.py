"""The connection of a command to a running embedded cluster: its address, its requests, and its errors as faults."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, TypeVar

import grpc
import typer

from evenhand.cluster.v1 import cluster_pb2 as pb
from evenhand.cluster.v1 import cluster_pb2_grpc as rpc
from evenhand_cli import terminal
from evenhand_cli.embedded.kinds import plural
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.near import near_matches
from evenhand_cli.signatures import joined
from shim_client.cluster_service import (
    DEFAULT_ADDRESS,
    MESSAGE_BYTES_MAX,
    NoAddressError,
    check_loopback,
)
from shim_client.core_client.causes import cause
from shim_client.embedded.admission import DEFAULT_NAMESPACE, NAMESPACED

TIMEOUT_S = 30.0
START_ADVICE = "start one with `evenhand shim --cluster DIR`, or give the address that it printed with --address"
ADVICE = {
    grpc.StatusCode.UNIMPLEMENTED: "this is not an embedded cluster, or another version of it: give --address",
    grpc.StatusCode.DEADLINE_EXCEEDED: "see whether the shim is busy, and try again",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "give fewer objects at once",
}
UNREACHABLE = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED})

Address = Annotated[
    str,
    typer.Option(
        "--address",
        envvar="EVENHAND_CLUSTER",
        metavar="HOST:PORT",
        help=f"Address of the embedded cluster, which its shim prints; {DEFAULT_ADDRESS} when not given.",
    ),
]
Item = dict[str, Any]
"""A Kubernetes object as plain values."""
Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Listed:
    """The objects of a kind, and the cluster's time in Unix milliseconds."""

    kind: str
    items: list[Item]
    now_ms: int


@dataclass(frozen=True, slots=True)
class Client:
    """An open connection to an embedded cluster."""

    address: str
    stub: "rpc.ClusterServiceStub"

    def ask(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Request, Response]",
        request: Request,
        otherwise: Callable[[], Fault] | None = None,
    ) -> Response:
        """Send one request and return its answer, within TIMEOUT_S seconds.

        Raises Fault if no answer comes in this time, or if the cluster refuses.

        If the object does not exist, the Fault is the result of `otherwise`.
        """
        try:
            with terminal.patience(f"waiting for {self.address}"):
                return method(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            if otherwise is not None and error.code() is grpc.StatusCode.NOT_FOUND:
                raise otherwise() from error
            raise fault_of(error, self.address) from error

    def objects(self, kind: str, namespace: str = "") -> Listed:
        """Return the objects of a kind, in all namespaces when `namespace` is empty.

        Raises Fault if the cluster does not answer or refuses.
        """
        answer = self.ask(
            self.stub.ListObjects, pb.ListObjectsRequest(kind=kind, namespace=namespace)
        )
        return Listed(kind, [json.loads(text) for text in answer.objects_json], answer.taken_at_ms)

    def check_namespace(self, namespace: str) -> None:
        """Raise Fault for a namespace that does not exist. The empty namespace means all namespaces.

        As in Kubernetes, the namespace `default` always exists, although it becomes an object only when it gets its
        first pod.
        """
        names = [one["metadata"]["name"] for one in self.objects("Namespace").items]
        names = list(dict.fromkeys(["default", *names]))
        if namespace and namespace not in names:
            raise Fault(
                f"there is no namespace `{namespace}`",
                where="--namespace",
                advice=near_matches(namespace, names)
                or "see what there is: evenhand cluster get namespaces",
            )

    def missing(self, kind: str, namespace: str, name: str) -> Fault:
        """Return the Fault that says that an object does not exist, and names objects with similar names.

        Raises Fault if the cluster does not answer or refuses.
        """
        found = self.objects(kind)
        here = scope(kind, namespace)
        names = [one["metadata"]["name"] for one in found.items if space(one) in ("", here)]
        others = sorted(space(one) for one in found.items if one["metadata"]["name"] == name)
        where = f" in namespace {here}" if here else ""
        advice = near_matches(name, names)
        if others:
            advice = f"namespace {others[0]} has one: --namespace {others[0]}"
        listing = f"evenhand cluster get {plural(kind)}"
        return Fault(
            f"there is no {kind} `{name}`{where}",
            where=f"embedded cluster at {self.address}",
            advice=advice or f"see what there is: {listing}",
        )


def scope(kind: str, namespace: str) -> str:
    """Return the namespace in which an object of this kind is looked for, or "" for a kind that has no namespaces."""
    return (namespace or DEFAULT_NAMESPACE) if kind in NAMESPACED else ""


def space(item: Item) -> str:
    """Return the namespace of an object, or "" for a kind that has no namespaces."""
    return str(item["metadata"].get("namespace", ""))


def asks_cluster(command: Callable[Concatenate[Client, ...], None]) -> Callable[..., None]:
    """Return a command with the option --address; the command gets the open connection as its first argument."""

    def connected(address: Address = DEFAULT_ADDRESS, **rest: Any) -> None:  # noqa: ANN401
        with connection(address) as client:
            command(client, **rest)

    return joined(command, connected)


@contextmanager
def connection(address: str) -> Iterator[Client]:
    """Yield a client whose connection is made with its first request. Raises Fault when the address is not of this machine."""
    try:
        check_loopback(address)
    except NoAddressError as error:
        raise Fault(
            str(error),
            where="--address or EVENHAND_CLUSTER",
            advice=f"write HOST:PORT of this machine, such as {DEFAULT_ADDRESS}",
            code=ExitCode.USAGE,
        ) from error
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(address, options) as channel:
        yield Client(address, rpc.ClusterServiceStub(channel))


def check_size(request: pb.ApplyObjectsRequest) -> None:
    """Raise Fault for a request that is larger than an embedded cluster accepts."""
    if request.ByteSize() > MESSAGE_BYTES_MAX:
        raise Fault(
            f"the manifests are larger than {MESSAGE_BYTES_MAX:,} bytes",
            where="argument FILE",
            advice="give fewer files at once",
        )


def fault_of(error: grpc.RpcError, address: str) -> Fault:
    """Return the fault for a request that failed."""
    code, text = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE:
        return Fault(
            f"cannot reach an embedded cluster at {address}",
            where=cause(text),
            advice=START_ADVICE,
            code=ExitCode.UNREACHABLE,
        )
    return Fault(
        text or code.name.lower(),
        where=f"embedded cluster at {address}",
        advice=ADVICE.get(code, ""),
        code=ExitCode.UNREACHABLE if code in UNREACHABLE else ExitCode.PROBLEM,
    )
