"""Decisions and verdicts of a small cluster, in the form in which the core sends them."""

from evenhand.v1 import decisions_pb2 as pb
from tests.cli.samples import T0, cores_and_gib


def victim(name: str, **more: object) -> pb.Victim:
    one = pb.Victim(
        allocation_key=f"uid-of-{name}",
        application_id="count",
        queue="root.batch",
        node_id="node-a",
        resources=cores_and_gib(2, 4),
        priority=-5,
        because="root.batch is over its guarantee (rule 5, G4)",
        state=pb.VICTIM_STATE_LEAVING,
        name=f"crunch/{name}",
    )
    one.MergeFrom(pb.Victim(**more))  # type: ignore[arg-type]
    return one


def spared() -> pb.SparedCandidates:
    return pb.SparedCandidates(
        law="below-guarantee",
        rule="without it a queue would be below its guarantee (rule 2, G4, Q12)",
        queue="root.services",
        count=12,
        examples=["web/front-1", "web/front-2"],
    )


def level() -> pb.DecidingLevel:
    return pb.DecidingLevel(
        queue="root.research",
        role="deciding",
        resource_type="vcore",
        guaranteed=24_000,
        max=72_000,
        held=16_000,
    )


def claim() -> pb.Decision:
    gets = pb.Beneficiary(
        allocation_key="uid-of-train",
        application_id="train",
        queue="root.research",
        node_id="node-a",
        resources=cores_and_gib(4, 8),
        priority=100,
        name="lab/train-1",
    )
    return pb.Decision(
        decision_id="g-19aa1b2c3d4-17",
        policy="guaranteed",
        partition="default",
        at_ms=T0,
        state=pb.DECISION_STATE_ORDERED,
        summary="Ask lab/train-1 of root.research gets the capacity of 2 pods on node-a.",
        beneficiaries=[gets],
        victims=[victim("count-1", state=pb.VICTIM_STATE_GONE), victim("count-2", opted_out=True)],
        spared=[spared()],
        levels=[level(), pb.DecidingLevel(queue="root", resource_type="vcore", hidden=True)],
        expires_ms=T0 + 600_000,
    )


def quota_run() -> pb.Decision:
    run = pb.QuotaRun(
        queue="root.batch",
        target={"vcore": 8_000},
        freed={"vcore": 6_000},
        missing={"vcore": 2_000},
        result=pb.QUOTA_RESULT_SHORTFALL,
        candidates=9,
        blocked_by="below-guarantee",
        blocking_queue="root.batch.night",
    )
    return pb.Decision(
        decision_id="q-19aa1b2c3d5-18",
        policy="quota",
        partition="default",
        at_ms=T0 + 1_000,
        state=pb.DECISION_STATE_FULFILLED,
        summary="Queue root.batch is reduced to its maximum.",
        victims=[victim(f"count-{number}", state=pb.VICTIM_STATE_GONE) for number in (3, 4, 5)],
        quota_run=run,
        ended_ms=T0 + 30_000,
        end_reason="all victims have ended",
    )


def trim() -> pb.Decision:
    run = pb.QuotaRun(
        queue="root",
        target={"vcore": 4_000},
        freed={"vcore": 4_000},
        result=pb.QUOTA_RESULT_COMPLETE,
        candidates=5,
    )
    return pb.Decision(
        decision_id="t-19aa1b2c3d7-20",
        policy="trim",
        partition="default",
        at_ms=T0 + 3_000,
        state=pb.DECISION_STATE_ORDERED,
        summary="more is used than the nodes have: 2 allocations are evicted",
        victims=[victim("count-8"), victim("front-9", queue="root.services")],
        quota_run=run,
    )


def tenants_side() -> pb.Decision:
    """Return a claim's decision, reduced to what the owner of one victim may see."""
    return pb.Decision(
        decision_id="g-19aa1b2c3d6-19",
        policy="guaranteed",
        partition="default",
        at_ms=T0 + 2_000,
        state=pb.DECISION_STATE_ORDERED,
        summary="1 allocation of root.batch is evicted for another queue.",
        victims=[victim("count-7")],
        beneficiaries_elsewhere=1,
        victims_elsewhere=2,
    )


def verdict() -> pb.PreemptionVerdict:
    return pb.PreemptionVerdict(
        policy="guaranteed",
        law="no-covering-victims",
        rule="on no node do the victims that the rules allow free enough capacity (G8, G12)",
        because="node-b comes nearest",
        node_id="node-b",
        missing={"vcore": 1_500},
        at_ms=T0 + 90_000,
        retry_ms=T0 + 105_000,
        spared=[spared()],
        levels=[level()],
    )
