"""The scripts of the preemption benchmark over gRPC: a full cluster, then claims or a lowered max."""

import time

from evenhand.v1 import config_pb2
from si.v1 import si_pb2 as si
from tests.bench import clusters
from tests.bench.clusters import PER_NODE, Cluster
from tests.bench.messages import (
    applications_told,
    as_resource,
    manager,
    nodes_told,
    packed,
    registered,
    settled,
)
from tests.bench.script import Script, Step

APPLY = "/evenhand.v1.ConfigurationService/Apply"


def _nodes(cluster: Cluster) -> list[si.NodeInfo]:
    capacity = as_resource(clusters.quantities(100 * PER_NODE))
    return [
        si.NodeInfo(nodeID=f"node-{at:05}", action=si.NodeInfo.CREATE, schedulableResource=capacity)
        for at in range(cluster.nodes)
    ]


def _applications(cluster: Cluster) -> dict[str, str]:
    leaves = cluster.leaves * cluster.applications
    return {
        **dict(clusters.application(cluster, at) for at in range(leaves)),
        "claimant": "root.high",
    }


def _running(cluster: Cluster, at: int) -> si.Allocation:
    percent, priority, opted = clusters.shape(cluster, at)
    return si.Allocation(
        allocationKey=f"run-{at:06}",
        applicationID=clusters.application(cluster, at)[0],
        partitionName="default",
        nodeID=f"node-{at // PER_NODE:05}",
        resourcePerAlloc=as_resource(clusters.quantities(percent)),
        priority=priority,
        preemptionPolicy=si.AllocationPreemptionPolicy(
            allowPreemptSelf=not opted, allowPreemptOther=True
        ),
        allocationTags={"creationTime": str(1_700_000_000 - at)},
    )


def _asks(cluster: Cluster) -> list[si.Allocation]:
    return [
        si.Allocation(
            allocationKey=f"claim-{at}",
            applicationID="claimant",
            partitionName="default",
            resourcePerAlloc=as_resource(clusters.quantities(100)),
            priority=100,
            preemptionPolicy=si.AllocationPreemptionPolicy(
                allowPreemptSelf=True, allowPreemptOther=True
            ),
            allocationTags={"creationTime": str(int(time.time()) - 10)},
        )
        for at in range(cluster.claims)
    ]


def _standing(cluster: Cluster, most: int | None = None) -> list[Step]:
    """Return the steps before the measurement, which fill a cluster; `most` limits all low leaves together."""
    return [
        registered(clusters.queues_yaml(cluster, most)),
        nodes_told(_nodes(cluster)),
        applications_told(_applications(cluster)),
        settled([_running(cluster, at) for at in range(cluster.running)]),
    ]


def claims(cluster: Cluster) -> Script:
    """Return the script of all asks at once, each release confirmed when it is read, until the last placement."""
    standing = _standing(cluster)
    claimed = Step(
        "UpdateAllocation",
        packed(_asks(cluster)),
        "new",
        cluster.claims,
        confirmed="released",
        manager=manager(),
    )
    return Script([*standing, claimed], len(standing))


def quota(cluster: Cluster) -> Script:
    """Return the script that lowers a max to a tenth and waits until the last victim is announced."""
    standing = _standing(cluster, cluster.running)
    left = cluster.running // clusters.LOWERED
    request = config_pb2.ApplyRequest(yaml=clusters.queues_yaml(cluster, left), source="lowered")
    lowered = [
        Step(APPLY, [request.SerializeToString()]),
        Step("UpdateAllocation", [], "released", cluster.running - left),
    ]
    return Script([*standing, *lowered], len(standing))
