"""Preemption decisions on a timeline: the preemptor, the victims, the rule, the state and the lost work."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evenhand.v1 import decisions_pb2, decisions_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core
from evenhand_cli.output import word
from evenhand_cli.paging import every
from evenhand_cli.render import decisions as words
from evenhand_console.at_once import begin
from evenhand_console.parts import Part, part_of
from evenhand_console.query import Query
from evenhand_console.timelines import Span, Timeline, timeline
from evenhand_console.view import View

ROWS_MAX: Final = 100
"""Largest number of decisions on a page."""
REASONS_MAX: Final = 2
"""Largest number of reasons of victims that a row names."""
ALL: Final = "all"
OPEN: Final = "open"


@dataclass(frozen=True, slots=True)
class Read:
    """The replies from which the page is built."""

    info: inspect_pb2.ServerInfoResponse
    partitions: Sequence[inspect_pb2.Partition]
    decisions: Sequence[decisions_pb2.Decision]


@dataclass(frozen=True, slots=True)
class Row:
    """A decision. The key of its only beneficiary links to the page Why. The key is empty if there is no beneficiary, or more than one."""

    decision_id: str
    at_ms: int
    policy: str
    state: str
    ended_ms: int
    end_reason: str
    beneficiary: str
    beneficiary_key: str
    queue: str
    queue_exists: bool
    node: str
    victims: str
    of: tuple[str, ...]
    because: tuple[str, ...]
    lost: str


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page."""

    partition: str
    partitions: tuple[str, ...]
    policies: tuple[str, ...]
    now_ms: int
    since_ms: int
    """The instant at which the core was started. Earlier decisions are only in the history."""
    timeline: Timeline | None
    part: Part[Row]


def read(core: Core, query: Query) -> Read:
    """Read the decisions that the choices in the address select.

    Raises Fault if the core does not answer or refuses.
    """
    decisions = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    inspect = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = decisions_pb2.ListDecisionsRequest(
        partition=query["partition"], queue=query["queue"], open_only=query["state"] == OPEN
    )
    info = begin(lambda: core.ask(inspect.ServerInfo, inspect_pb2.ServerInfoRequest()))
    listed = begin(lambda: core.ask(inspect.ListPartitions, inspect_pb2.ListPartitionsRequest()))
    found = every(core, decisions.ListDecisions, request, lambda page: page.decisions)
    return Read(info.result(), listed.result().partitions, found)


def shape(found: Read, query: Query) -> Page:
    """Return the values of the page, the latest decision first."""
    policies = sorted({one.policy for one in found.decisions})
    policy = query["policy"]
    shown = [one for one in reversed(found.decisions) if policy in {"", ALL, one.policy}]
    now = found.info.now_ms
    part = part_of(shown, query["start"], ROWS_MAX)
    spans = [_span(one, now) for one in part.rows]
    return Page(
        partition=query["partition"],
        partitions=("", *(one.name for one in found.partitions)),
        policies=(ALL, *policies),
        now_ms=now,
        since_ms=found.info.started_at_ms,
        timeline=timeline(spans, max([now, *(one.until_ms for one in spans)])),
        part=part.made(_row),
    )


def state_of(one: decisions_pb2.Decision) -> str:
    """Return the state of a decision as a word."""
    return word(decisions_pb2.DecisionState.DESCRIPTOR, one.state)


def _row(one: decisions_pb2.Decision) -> Row:
    single = len(one.beneficiaries) == 1 and not one.beneficiaries_elsewhere
    because = dict.fromkeys(each.because for each in one.victims if each.because)
    queue = words.queue(one)
    named = {each.queue for each in one.beneficiaries} | {one.quota_run.queue}
    return Row(
        decision_id=one.decision_id,
        at_ms=one.at_ms,
        policy=one.policy,
        state=state_of(one),
        ended_ms=one.ended_ms,
        end_reason=one.end_reason,
        beneficiary=words.beneficiary(one),
        beneficiary_key=one.beneficiaries[0].allocation_key if single else "",
        queue=queue,
        queue_exists=queue in named,
        node=words.nodes(one),
        victims=words.counted_victims(one),
        of=tuple(words.queues_of_victims(one)),
        because=tuple(because)[:REASONS_MAX],
        lost=words.lost(one) if one.lost_ran_ms else "",
    )


def _span(one: decisions_pb2.Decision, now: int) -> Span:
    state = state_of(one)
    return Span(one.policy, one.at_ms, one.ended_ms or now, state, f"{one.summary} ({state})")


PARAMETERS: Final = {"partition": "", "queue": "", "policy": "", "state": ALL, "start": ""}
VIEW: Final = View(
    "decisions",
    "Decisions",
    "/decisions",
    read,
    shape,
    PARAMETERS,
    kinds=frozenset(("decision", "configuration")),
)
