"""The conversion of an RPC's error into a fault, which says what is wrong, where, and what to do.

The core answers with `google.rpc.Status` and details (design 1.12). This module converts status and details to lines
of text.
"""

from collections.abc import Sequence
from typing import cast

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from evenhand_cli.faults import ExitCode, Fault
from shim_client.core_client.causes import START_ADVICE, cause

TLS_ADVICE = (
    "give --tls-ca FILE (and --tls-cert, --tls-key) when the core speaks TLS,"
    " and none of them when it does not"
)
ADVICE = {
    grpc.StatusCode.UNAUTHENTICATED: "give --token-file FILE, or a client certificate with --tls-cert",
    grpc.StatusCode.PERMISSION_DENIED: "ask with an identity whose role allows it (see the user guide, Roles)",
    grpc.StatusCode.UNIMPLEMENTED: "the core is older than this command, or it is another server:"
    " compare with `evenhand version`",
    grpc.StatusCode.DEADLINE_EXCEEDED: "try again with a longer --timeout; when it stays, see the core's log",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "ask for less: a queue, an application or a node",
}
CONNECTION_CODES = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


def fault_of(error: grpc.RpcError, address: str, secure: bool) -> Fault:
    """Return the fault for an RPC to `address` that failed."""
    code = error.code()
    if code is grpc.StatusCode.UNAVAILABLE:
        return _unreachable(error, address, secure)
    exit_code = ExitCode.UNREACHABLE if code in CONNECTION_CODES else ExitCode.PROBLEM
    violations, advice = _details(error)
    return Fault(
        error.details() or code.name.lower(),
        where="\n".join(violations) or f"core at {address}",
        advice=advice or ADVICE.get(code, ""),
        code=exit_code,
    )


def _unreachable(error: grpc.RpcError, address: str, secure: bool) -> Fault:
    reason = error.details() or ""
    lowered = reason.lower()
    shakes = ("ssl", "handshake", "certificate", "tls")
    if secure or any(sign in lowered for sign in shakes) or "socket closed" in lowered:
        advice = TLS_ADVICE if "refused" not in lowered else START_ADVICE
    else:
        advice = START_ADVICE
    return Fault(
        f"cannot reach the core at {address}",
        where=cause(reason),
        advice=advice,
        code=ExitCode.UNREACHABLE,
    )


def reason_of(error: grpc.RpcError) -> str:
    """Return the core's stable reason of an RPC that failed, such as `NO_HISTORY`, or "" if the core gave no reason."""
    info = error_details_pb2.ErrorInfo()
    return next((str(info.reason) for one in _packed(error) if one.Unpack(info)), "")


def _packed(error: grpc.RpcError) -> Sequence[AnyMessage]:
    """Return the details of an RPC that failed.

    If a call was cancelled while it failed, its details do not match its status code. Return no details for a call
    that was cancelled.
    """
    try:
        status = rpc_status.from_call(cast("grpc.Call", error))
    except ValueError:
        return ()
    return () if status is None else status.details


def _details(error: grpc.RpcError) -> tuple[list[str], str]:
    """Return the field violations as lines, and the core's advice."""
    violations: list[str] = []
    advice: list[str] = []
    for detail in _packed(error):
        _read_detail(detail, violations, advice)
    return violations, "\n".join(advice)


def _read_detail(detail: AnyMessage, violations: list[str], advice: list[str]) -> None:
    bad_request = error_details_pb2.BadRequest()
    precondition = error_details_pb2.PreconditionFailure()
    resource = error_details_pb2.ResourceInfo()
    help_links = error_details_pb2.Help()
    if detail.Unpack(bad_request):
        violations += [f"{one.field}: {one.description}" for one in bad_request.field_violations]
    elif detail.Unpack(precondition):
        violations += [f"{one.subject}: {one.description}" for one in precondition.violations]
    elif detail.Unpack(resource):
        violations.append(f"{resource.resource_type} {resource.resource_name}".strip())
    elif detail.Unpack(help_links):
        advice += [link.description for link in help_links.links]


def refusal_of(error: grpc.RpcError, address: str) -> Fault | None:
    """Return the Fault for a failed call if the core does not know the caller, or does not allow the call.

    Otherwise return None.
    """
    refused = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
    if not isinstance(error, grpc.Call) or error.code() not in refused:
        return None
    fault = fault_of(error, address, secure=False)
    fault.__cause__ = error
    return fault
