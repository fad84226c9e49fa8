"""The comparison of decisions under the shadow settings with live decisions.

The page lists the asks with different decisions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from evenhand.v1 import decisions_pb2, decisions_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core
from evenhand_cli.paging import every
from evenhand_cli.render import shadows as words
from evenhand_cli.render.lost_work import core_time
from evenhand_console.at_once import begin
from evenhand_console.parts import Part, part_of
from evenhand_console.query import Query
from evenhand_console.view import View

ROWS_MAX: Final = 100
"""Largest number of asks on a page."""
ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class Read:
    """The replies from which the page is built."""

    info: inspect_pb2.ServerInfoResponse
    decisions: Sequence[decisions_pb2.ShadowDecision]
    shadows: Sequence[decisions_pb2.Shadow]


@dataclass(frozen=True, slots=True)
class Row:
    """An ask, or a queue above its share, with different decisions under the live and the shadow settings."""

    found: decisions_pb2.ShadowDecision
    name: str
    live: str
    shadow: str
    difference: str
    why: str


@dataclass(frozen=True, slots=True)
class Side:
    """The totals of the decisions of one policy under the live settings, or under the shadow settings."""

    policy: str
    side: str
    decisions: int
    victims: int
    lost: str


@dataclass(frozen=True, slots=True)
class ShadowOf:
    """The shadow of one partition: its settings, and the totals of the live and the shadow decisions."""

    partition: str
    since_ms: int
    settings: tuple[tuple[str, str], ...]
    counts: tuple[tuple[str, int], ...]
    sums: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """The values of the page."""

    now_ms: int
    shadows: tuple[ShadowOf, ...]
    differences: tuple[str, ...]
    alike: int
    """The number of asks with the same decision under the live and the shadow settings."""
    part: Part[Row]


def read(core: Core, query: Query) -> Read:
    """Read the comparisons and the shadows. Raises Fault if the core does not answer or refuses."""
    stub = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    inspect = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = decisions_pb2.ListShadowDecisionsRequest(
        partition=query["partition"], queue=query["queue"]
    )
    shadows: list[decisions_pb2.Shadow] = []

    def rows(
        page: decisions_pb2.ListShadowDecisionsResponse,
    ) -> Iterable[decisions_pb2.ShadowDecision]:
        shadows[:] = page.shadows
        return page.decisions

    info = begin(lambda: core.ask(inspect.ServerInfo, inspect_pb2.ServerInfoRequest()))
    found = every(core, stub.ListShadowDecisions, request, rows)
    return Read(info.result(), found, shadows)


def shape(found: Read, query: Query) -> Page:
    """Return the values of the page, the latest difference first."""
    same = decisions_pb2.SHADOW_DIFFERENCE_SAME
    rows = [_row(one) for one in reversed(found.decisions) if one.difference != same]
    wanted = query["difference"]
    shown = [one for one in rows if wanted in {"", ALL, one.difference}]
    return Page(
        now_ms=found.info.now_ms,
        shadows=tuple(map(_shadow, found.shadows)),
        differences=(ALL, *sorted({one.difference for one in rows})),
        alike=sum(one.difference == same for one in found.decisions),
        part=part_of(shown, query["start"], ROWS_MAX),
    )


def _row(one: decisions_pb2.ShadowDecision) -> Row:
    return Row(
        found=one,
        name=words.name(one),
        live=words.choice_text(one, "live"),
        shadow=words.choice_text(one, "shadow"),
        difference=words.difference_word(one.difference),
        why=words.why(one),
    )


def _shadow(one: decisions_pb2.Shadow) -> ShadowOf:
    return ShadowOf(
        partition=one.partition,
        since_ms=one.since_ms,
        settings=tuple(sorted(one.settings.items())),
        counts=tuple((words.difference_word(each.difference), each.count) for each in one.counts),
        sums=tuple(
            Side(
                each.policy,
                "shadow" if each.shadow else "live",
                each.decisions,
                each.victims,
                core_time(each.lost_millicore_ms),
            )
            for each in one.sums
        ),
    )


PARAMETERS: Final = {"partition": "", "queue": "", "difference": ALL, "start": ""}
VIEW: Final = View(
    "shadow",
    "Shadow",
    "/shadow",
    read,
    shape,
    PARAMETERS,
    pause_s=2.0,
    kinds=frozenset(("shadow", "configuration")),
)
