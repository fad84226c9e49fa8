"""Messages of `evenhand.v1` about whether several asks fit at once.

A viewer gets nothing about nodes and other queues. The functions are pure.
"""

from collections.abc import Sequence
from dataclasses import replace

from evenhand.v1 import explain_pb2 as pb
from server.model.reports import Excluded, GroupFit, LimitFit, NodeFit
from server.rpc.evenhand.redaction import sees_all
from server.rpc.roles import Caller


def seen(fit: GroupFit, caller: Caller) -> GroupFit:
    """Return the part of a fit that the caller may read. A viewer gets no nodes, no missing amounts and no limits of other queues."""
    if sees_all(caller):
        return fit
    limits = tuple(one for one in fit.limits if caller.sees(one.queue))
    return replace(
        fit,
        missing={},
        nodes=(),
        nodes_left_out=0,
        without_node=0,
        limits=limits,
        excluded=without_nodes(fit.excluded),
    )


def without_nodes(found: Sequence[Excluded]) -> tuple[Excluded, ...]:
    """Return which parts of an ask's constraints exclude nodes, but neither which nodes these are nor their taints."""
    return tuple(dict.fromkeys(Excluded(one.parts) for one in found))


def group_fit(fit: GroupFit) -> pb.GroupFit:
    """Return the fit as a message."""
    return pb.GroupFit(
        name=fit.name,
        members=fit.members,
        running=fit.running,
        size=fit.size,
        fitting=fit.fitting,
        fitting_on_nodes=fit.on_nodes,
        missing=fit.missing,
        rest=fit.rest,
        without_node=fit.without_node,
        nodes=map(_node, fit.nodes),
        nodes_left_out=fit.nodes_left_out,
        limits=map(_limit, fit.limits),
        looked_at=fit.looked_at,
        gang=fit.gang,
    )


def _node(one: NodeFit) -> pb.NodeFit:
    return pb.NodeFit(
        node_id=one.node_id,
        free=one.free,
        members=one.members,
        rest=one.rest,
        missing=one.missing,
    )


def _limit(one: LimitFit) -> pb.LimitFit:
    return pb.LimitFit(
        kind=one.kind, name=one.name, queue=one.queue, members=one.members, missing=one.missing
    )
