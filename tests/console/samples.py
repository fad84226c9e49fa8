"""A core with prepared answers for every view, and names that a hostile client could give its objects."""

from typing import Any, Final

from evenhand.v1 import (
    config_pb2,
    decisions_pb2,
    explain_pb2,
    history_pb2,
    inspect_pb2,
    reports_pb2,
    watch_pb2,
)
from tests.cli.fake import FakeCore
from tests.cli.samples import T0, partition, queue_tree

MARKUP: Final = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"
CONTROLS: Final = "a\x1b[2J\u202eb\u2066c\x00d\x7f"
LONG: Final = "l" * 253
HOSTILE: Final = (MARKUP, CONTROLS, LONG)


def core(name: str = "research") -> FakeCore:
    """Return a core on which the only busy queue, and every other object, has this name."""
    tree = queue_tree()
    queue = tree.root.children[1]
    queue.name, queue.path = name, f"root.{name}"
    queue.usage["vcore"] = 4000
    queue.not_enforced = name
    queue.limits.add(queue=f"root.{name}", user=name, max={name: 1})
    tree.root.children[1].waiting_reasons[0].code = name
    return FakeCore(
        ServerInfo=inspect_pb2.ServerInfoResponse(
            version=name, started_at_ms=T0, partitions=["default"]
        ),
        ListPartitions=inspect_pb2.ListPartitionsResponse(
            partitions=[partition()], picture=inspect_pb2.Picture(taken_at_ms=T0)
        ),
        GetQueueTree=inspect_pb2.GetQueueTreeResponse(tree=tree),
        CheckConsistency=inspect_pb2.CheckConsistencyResponse(
            findings=[
                inspect_pb2.Finding(
                    severity=inspect_pb2.FINDING_SEVERITY_ERROR,
                    subject=f"queue root.{name}",
                    message=name,
                    advice=name,
                )
            ]
        ),
        ListDecisions=decisions_pb2.ListDecisionsResponse(decisions=[_decision(name)]),
        GetDecision=decisions_pb2.GetDecisionResponse(
            decision=_decision(name), lines=[name, name], taken_at_ms=T0
        ),
        ListShadowDecisions=decisions_pb2.ListShadowDecisionsResponse(
            decisions=[
                decisions_pb2.ShadowDecision(
                    partition=name,
                    allocation_key=name,
                    name=name,
                    queue=name,
                    difference=decisions_pb2.SHADOW_DIFFERENCE_ONLY_LIVE,
                    live=decisions_pb2.ShadowChoice(policy=name, node_id=name, decision_id=name),
                    law=name,
                )
            ],
            shadows=[
                decisions_pb2.Shadow(
                    partition=name,
                    settings={name: name},
                    sums=[decisions_pb2.ShadowSum(policy=name)],
                )
            ],
        ),
        WatchEvents=[
            watch_pb2.WatchEventsResponse(
                events=[
                    watch_pb2.EventRecord(
                        number=1, time_ms=T0, kind="node", object=name, message=name
                    )
                ]
            )
        ],
        Explain=_explained(name),
        ListAllocations=inspect_pb2.ListAllocationsResponse(allocations=[_pod(name)]),
        ListApplications=inspect_pb2.ListApplicationsResponse(
            applications=[
                inspect_pb2.Application(
                    application_id=name,
                    queue=f"root.{name}",
                    user=name,
                    usage={"vcore": 1},
                    state=name,
                    asks_waiting=1,
                    waiting_reasons=[inspect_pb2.ReasonCount(code=name, count=1)],
                )
            ]
        ),
        ListNodes=inspect_pb2.ListNodesResponse(nodes=[_node(name)]),
        ListConfigurations=history_pb2.ListConfigurationsResponse(
            configurations=[_configuration(name, 2), _configuration(name, 1)]
        ),
        GetConfiguration=history_pb2.GetConfigurationResponse(
            configuration=_configuration(name, 1), yaml="# earlier"
        ),
        ListFailovers=history_pb2.ListFailoversResponse(
            failovers=[
                history_pb2.Failover(at_ms=T0, kind=name, subject=name, text=name, core=name)
            ],
            period=history_pb2.HistoryPeriod(gaps=[history_pb2.HistoryGap(lost=1, why=name)]),
        ),
        GetPodHistory=history_pb2.GetPodHistoryResponse(pods=[past_pod(name)]),
        Get=config_pb2.GetResponse(yaml="# now", digest="2", revision=2),
        Diff=config_pb2.DiffResponse(
            changes=[config_pb2.ConfigChange(kind=name, subject=name, field=name, before=name)],
            revision=2,
            digest="2",
        ),
        ListQueueSettings=inspect_pb2.ListQueueSettingsResponse(
            queues=[
                inspect_pb2.QueueSettings(
                    path=f"root.{name}",
                    settings=[
                        inspect_pb2.QueueSetting(
                            name=name, value=name, origin=inspect_pb2.SETTING_ORIGIN_HERE
                        )
                    ],
                )
            ]
        ),
        GetLostWork=reports_pb2.GetLostWorkResponse(
            lines=[
                reports_pb2.LostWork(
                    claimant=f"root.{name}", victim=f"root.{name}", policy=name, victims=1
                )
            ]
        ),
        GetQueueHistory=history_pb2.GetQueueHistoryResponse(
            series=[history_pb2.UsageSeries(resource_type=name, points=points())],
            waits=history_pb2.WaitSummary(
                asked=1, reasons=[history_pb2.WaitReason(code=name, pods=1)]
            ),
        ),
    )


def _configuration(name: str, revision: int) -> history_pb2.PastConfiguration:
    return history_pb2.PastConfiguration(
        revision=revision,
        digest=str(revision),
        source=name,
        applied_by=name,
        at_ms=T0,
        changes=[config_pb2.ConfigChange(kind=name, subject=name, field=name, before=name)],
        effects=[history_pb2.PolicyEffect(policy=name, victims=1)],
    )


def _node(name: str) -> inspect_pb2.Node:
    return inspect_pb2.Node(
        node_id=name,
        capacity={name: 5},
        usage={name: 1},
        pledged={name: 1},
        available={name: 3},
        reservations=1,
        labels={name: name},
        taints=[inspect_pb2.NodeTaint(key=name, effect=name)],
    )


def _pod(name: str) -> inspect_pb2.Allocation:
    return inspect_pb2.Allocation(
        allocation_key=name,
        name=name,
        application_id=name,
        queue=f"root.{name}",
        state=inspect_pb2.ALLOCATION_STATE_WAITING,
        resources={"vcore": 1000},
        waiting_code=name,
        protection=name,
        node_id=name,
        since_ms=T0,
    )


def past_pod(name: str) -> history_pb2.PastPod:
    """Return a pod that was evicted."""
    return history_pb2.PastPod(
        partition=name,
        key=name,
        name=name,
        application_id=name,
        queue=name,
        resources={"vcore": 1000},
        asked_ms=T0,
        placed_ms=T0 + 5_000,
        node_id=name,
        ended_ms=T0 + 65_000,
        end_code="preempted",
        end_text=name,
        decision_id=name,
        waits=[history_pb2.PastWait(code=name, since_ms=T0, until_ms=T0 + 5_000)],
    )


def _decision(name: str) -> decisions_pb2.Decision:
    spared = decisions_pb2.SparedCandidates(
        law=name, rule=name, queue=name, count=1, examples=[name]
    )
    victim = decisions_pb2.Victim(
        allocation_key=name, application_id=name, queue=name, node_id=name, because=name, name=name
    )
    ranked = decisions_pb2.RankedCandidate(
        allocation_key=name, name=name, queue=name, rank=1, values=[name], law=name
    )
    return decisions_pb2.Decision(
        decision_id=name,
        policy="guaranteed",
        partition=name,
        at_ms=T0,
        expires_ms=T0 + 60_000,
        summary=name,
        state=decisions_pb2.DECISION_STATE_ORDERED,
        beneficiaries=[
            decisions_pb2.Beneficiary(allocation_key=name, queue=name, node_id=name, name=name)
        ],
        victims=[victim],
        spared=[spared],
        levels=[decisions_pb2.DecidingLevel(queue=name, role=name, resource_type=name)],
        end_reason=name,
        order=[name],
        ranking=[ranked],
        why_these=[name],
        lost_ran_ms=1,
        lost_resource_seconds={name: 1},
    )


def _explained(name: str) -> explain_pb2.ExplainResponse:
    level = explain_pb2.QueueLevel(
        queue=f"root.{name}", max={name: 1}, head_room={name: 0}, short_types=[name], blocks=True
    )
    limit = explain_pb2.LimitLevel(
        queue=f"root.{name}", subject=f"user {name}", max={name: 1}, blocks=True
    )
    spared = decisions_pb2.SparedCandidates(
        law=name, rule=name, queue=name, count=1, examples=[name]
    )
    verdict = decisions_pb2.PreemptionVerdict(policy=name, law=name, because=name, spared=[spared])
    waiting = explain_pb2.WaitingAsk(
        application_id=name,
        queue=f"root.{name}",
        resources={name: 1},
        code=name,
        levels=[level],
        limits=[limit],
        node_tally=[explain_pb2.NodeTally(code=name, nodes=1, examples=[name], message=name)],
        nodes_examined=1,
        nearest_node=name,
        nearest_missing={name: 1},
        reservation=explain_pb2.AskReservation(node_id=name, decision_id=name),
        preemption=verdict,
        shadow=verdict,
        next_steps=[name],
        kept_off_by=[explain_pb2.NodeReservation(node_id=name, allocation_key=name, name=name)],
    )
    return explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_WAITING_ASK,
        key=name,
        partition=name,
        lines=[name, name],
        waiting=waiting,
        queue=explain_pb2.ExplainedQueue(
            reach=inspect_pb2.QueueReach(may_claim_from=[name], may_be_claimed_by=[name])
        ),
        taken_at_ms=T0,
        name=name,
    )


def points() -> list[Any]:
    """Return two points with a gap between them."""
    return [
        history_pb2.UsagePoint(at_ms=T0, covered_ms=1, usage=5),
        history_pb2.UsagePoint(at_ms=T0 + 1),
        history_pb2.UsagePoint(at_ms=T0 + 2, covered_ms=1, usage=10),
    ]
