"""A pod's condition while a node's free capacity is reserved for another, through shim, core and socket."""

import re

from shim_client.config import Settings
from tests.shim.objects import named, node, pod
from tests.shim.polling import until
from tests.shim.rig import WatchedCluster, core_here, shim_at_work, waiting

QUEUES = """
partitions:
  - name: default
    reservations: {timeout: 1h}
    queues:
      - name: root
        submitacl: "*"
        queues: [{name: a}, {name: b}]
"""
REASON = re.compile(
    r"1 node has free capacity that is reserved for an ask with priority 0 until \d\d:\d\d:\d\d UTC"
)


def _says(cluster: WatchedCluster, name: str) -> tuple[str, str]:
    """Reason and message of the condition PodScheduled of a pod that waits."""
    for item in waiting(cluster):
        for one in item["status"].get("conditions", ()):
            if item["metadata"]["name"] == name and one["type"] == "PodScheduled":
                return one["reason"], one["message"]
    return "", ""


def _node_of(cluster: WatchedCluster, name: str) -> str:
    specs = {item["metadata"]["name"]: item["spec"] for item in cluster.pods()}
    return str(specs[name].get("nodeName", ""))


async def test_the_condition_says_that_capacity_is_reserved_and_an_urgent_pod_runs() -> None:
    cluster = WatchedCluster()
    cluster.create(node("n1", cpu="1"))
    cluster.create(named("PriorityClass", "urgent", value=100))
    settings = Settings(cluster_id="reserved", queues=QUEUES)
    other = {"applicationId": "other", "queue": "root.b"}
    async with core_here() as address, shim_at_work(cluster, address, settings):
        cluster.create(pod("base", cpu="100m"))
        await until(lambda: _node_of(cluster, "base") == "n1")
        cluster.create(pod("large", cpu="1"))
        await until(lambda: _says(cluster, "large")[0] == "Unschedulable")
        cluster.create(pod("small", cpu="10m", labels=other))
        await until(lambda: "reserved" in _says(cluster, "small")[1])
        reason, message = _says(cluster, "small")
        cluster.create(pod("urgent", cpu="10m", labels=other, spec={"priorityClassName": "urgent"}))
        await until(lambda: _node_of(cluster, "urgent") == "n1")
    assert reason == "Unschedulable"
    assert REASON.fullmatch(message), message
    assert _node_of(cluster, "small") == ""
