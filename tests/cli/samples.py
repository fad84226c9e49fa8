"""Answers about a small cluster, in the form in which the core sends them."""

from typing import Any

from evenhand.v1 import config_pb2, explain_pb2, inspect_pb2, watch_pb2

GIB = 1 << 30
T0 = 1_795_260_000_000
"""An instant in November 2026, Unix milliseconds."""


def cores_and_gib(cores: float, gib: float, **others: int) -> dict[str, int]:
    return {"vcore": int(cores * 1000), "memory": int(gib * GIB), **others}


def queue_tree() -> inspect_pb2.QueueTree:
    research = inspect_pb2.Queue(
        name="research",
        path="root.research",
        state=inspect_pb2.QUEUE_STATE_ACTIVE,
        leaf=True,
        guaranteed=cores_and_gib(8, 32),
        max=cores_and_gib(24, 96),
        usage=cores_and_gib(12, 40),
        head_room=cores_and_gib(12, 56),
        pending=cores_and_gib(4, 16),
        applications=3,
        allocations=12,
        asks_waiting=4,
        waiting_reasons=[inspect_pb2.ReasonCount(code="no-node", count=4)],
    )
    adhoc = inspect_pb2.Queue(
        name="adhoc",
        path="root.adhoc",
        state=inspect_pb2.QUEUE_STATE_DRAINING,
        leaf=True,
        dynamic=True,
        max={"vcore": 2000},
        usage={"vcore": 2000},
        head_room={"vcore": 0},
        allocations=2,
    )
    root = inspect_pb2.Queue(
        name="root",
        path="root",
        state=inspect_pb2.QUEUE_STATE_ACTIVE,
        usage=cores_and_gib(14, 40),
        head_room=cores_and_gib(50, 216),
        pending=cores_and_gib(4, 16),
        applications=4,
        allocations=14,
        asks_waiting=4,
        children=[adhoc, research],
    )
    return inspect_pb2.QueueTree(partition="default", root=root, taken_at_ms=T0)


def partition() -> inspect_pb2.Partition:
    return inspect_pb2.Partition(
        name="default",
        node_sort_policy="fair",
        capacity=cores_and_gib(64, 256),
        usage=cores_and_gib(14, 40),
        foreign_usage=cores_and_gib(1, 2),
        counts=inspect_pb2.ClusterCounts(
            nodes=4, draining_nodes=1, queues=3, applications=4, allocations=14, waiting_asks=4
        ),
    )


def application() -> inspect_pb2.Application:
    return inspect_pb2.Application(
        application_id="train-1",
        queue="root.research",
        state="Running",
        user="ada",
        submitted_at_ms=T0,
        usage=cores_and_gib(12, 40),
        pending=cores_and_gib(4, 16),
        allocations=12,
        asks_waiting=4,
        waiting_reasons=[inspect_pb2.ReasonCount(code="no-node", count=4)],
    )


def node() -> inspect_pb2.Node:
    return inspect_pb2.Node(
        node_id="node-a",
        schedulable=True,
        capacity=cores_and_gib(16, 64, **{"nvidia.com/gpu": 4}),
        usage=cores_and_gib(7.5, 16, **{"nvidia.com/gpu": 1}),
        foreign_usage=cores_and_gib(0.5, 1),
        allocations=6,
        foreign_allocations=2,
        taints=[inspect_pb2.NodeTaint(key="gpu", effect="NoSchedule")],
    )


def allocation(key: str) -> inspect_pb2.Allocation:
    return inspect_pb2.Allocation(
        allocation_key=key,
        may_be_preempted=True,
        application_id="train-1",
        queue="root.research",
        node_id="node-a",
        state=inspect_pb2.ALLOCATION_STATE_ALLOCATED,
        resources=cores_and_gib(1, 3.5),
        priority=10,
        since_ms=T0,
    )


def waiting_ask(key: str) -> inspect_pb2.Allocation:
    return inspect_pb2.Allocation(
        allocation_key=key,
        may_be_preempted=True,
        application_id="train-1",
        queue="root.research",
        state=inspect_pb2.ALLOCATION_STATE_WAITING,
        resources=cores_and_gib(1, 4),
        since_ms=T0,
        waiting_code="no-node",
    )


def why_it_waits(key: str) -> explain_pb2.ExplainResponse:
    level = explain_pb2.QueueLevel(
        queue="root.research",
        usage=cores_and_gib(12, 40),
        max=cores_and_gib(24, 96),
        head_room=cores_and_gib(12, 56),
    )
    narrow = explain_pb2.QueueLevel(
        queue="root",
        usage=cores_and_gib(63.5, 40),
        max={"vcore": 64_000},
        head_room={"vcore": 500},
        short_types=["vcore"],
        blocks=True,
    )
    ask = explain_pb2.WaitingAsk(
        application_id="train-1",
        queue="root.research",
        resources=cores_and_gib(1, 4),
        code="queue-limit",
        since_ms=T0,
        levels=[level, narrow],
        node_tally=[
            explain_pb2.NodeTally(code="short-vcore", nodes=3, examples=["node-a", "node-b"])
        ],
        nodes_examined=4,
        nodes_fitting=1,
        reservation=explain_pb2.AskReservation(
            node_id="node-d", since_ms=T0, short={"vcore": 1500}
        ),
        asks_before=2,
    )
    return explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_WAITING_ASK,
        key=key,
        partition="default",
        lines=["It waits for root: 0.5 cores are free, 1 is asked for."],
        waiting=ask,
        taken_at_ms=T0 + 95_000,
    )


def problems() -> list[config_pb2.ConfigProblem]:
    return [
        config_pb2.ConfigProblem(
            severity=config_pb2.PROBLEM_SEVERITY_ERROR,
            line=7,
            path="partitions[0].queues[0].resources.max.memory",
            message="`12Gx` is not a quantity",
            consequence="the file cannot be applied",
        ),
        config_pb2.ConfigProblem(
            severity=config_pb2.PROBLEM_SEVERITY_WARNING,
            line=9,
            path="partitions[0].queues[1]",
            message="no max",
        ),
    ]


def finding() -> inspect_pb2.Finding:
    return inspect_pb2.Finding(
        severity=inspect_pb2.FINDING_SEVERITY_ERROR,
        subject="queue root.research",
        code="usage-mismatch",
        message="usage is not the sum of its allocations",
        advice="restart the core and report this",
    )


def event(number: int) -> watch_pb2.EventRecord:
    return watch_pb2.EventRecord(
        number=number,
        time_ms=T0 + number,
        kind="placed",
        object=f"train-1-{number}",
        code="placed",
        message="placed",
        node_id="node-a",
    )


def setting(
    name: str, value: str, origin: inspect_pb2.SettingOrigin, queue: str = "", **rest: Any
) -> inspect_pb2.QueueSetting:
    return inspect_pb2.QueueSetting(name=name, value=value, origin=origin, queue=queue, **rest)


def queue_settings() -> list[inspect_pb2.QueueSetting]:
    here, inherited = inspect_pb2.SETTING_ORIGIN_HERE, inspect_pb2.SETTING_ORIGIN_INHERITED
    default = inspect_pb2.SETTING_ORIGIN_DEFAULT
    return [
        setting("guaranteed.vcore", "8", here, resource_type="vcore", amount=8000),
        setting("guaranteed.memory", "32Gi", here, resource_type="memory", amount=32 << 30),
        setting("max.nvidia.com/gpu", "0", here, resource_type="nvidia.com/gpu"),
        setting("weight", "1", default),
        setting("preemption.policy", "fence", here),
        setting("quota.preemption.delay", "2m", inherited, "root.up", note="no effect: off"),
        setting("submitacl", "*", inherited, "root"),
    ]


def explained_queue() -> explain_pb2.ExplainResponse:
    (_, research) = queue_tree().root.children
    return explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_QUEUE,
        key="root.research",
        partition="default",
        lines=["It is over its guarantee by 4 cores; 4 asks wait."],
        queue=explain_pb2.ExplainedQueue(queue=research, settings=queue_settings()),
    )
