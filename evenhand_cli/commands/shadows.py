"""The command `evenhand decisions --shadow`: decisions under the shadow settings, compared with the live decisions."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import decisions_pb2_grpc
from evenhand_cli import terminal
from evenhand_cli.commands.filters import Filter, check_filters
from evenhand_cli.connect import Core
from evenhand_cli.output import plain, plain_all
from evenhand_cli.paging import every
from evenhand_cli.render import shadows as pictures
from evenhand_cli.render.columns import table
from evenhand_cli.render.listing import Listing
from evenhand_cli.render.tables import footer

ALIKE_LISTED_MAX: Final = 10
"""Maximum number of asks with equal live and shadow decisions that are listed.

If there are more such asks, none of them are listed.
"""
LISTED_MAX: Final = 8
"""Maximum number of asks that have a line each. If there are more, asks with equal lines share a line."""
NONE = (
    "no partition has a shadow: write the settings that you think of under `preemption.shadow`, "
    "and both are shown here"
)

NO_ASK = "No ask yet for which either side decided something."


def shadows_listing(core: Core, partition: str, queue: str) -> Listing[pb.ShadowDecision]:
    """Return, for each ask with a live or a shadow decision, the latest live and the latest shadow decision.

    Also return the sums over all these asks.
    """
    stub = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    request = pb.ListShadowDecisionsRequest(partition=partition, queue=queue)
    taken, shadows = 0, list[pb.Shadow]()

    def rows(page: pb.ListShadowDecisionsResponse) -> Iterable[pb.ShadowDecision]:
        nonlocal taken, shadows
        taken, shadows = page.taken_at_ms, list(page.shadows)
        return page.decisions

    found = every(core, stub.ListShadowDecisions, request, rows)
    if not found:
        check_filters(core, partition, Filter("queue", queue))
    return Listing(
        "decisions",
        found,
        pictures.decisions(taken),
        pictures.name,
        plain,
        {"shadows": plain_all(shadows), "taken_at_ms": taken},
        draw=lambda rows, console, headers: _picture(
            rows, taken, shadows, console, headers=headers
        ),
    )


def _picture(
    rows: Sequence[pb.ShadowDecision],
    now: int,
    shadows: Sequence[pb.Shadow],
    console: Console,
    *,
    headers: bool,
) -> RenderableType:
    if not shadows:
        return Text(NONE)
    shown = [one for one in rows if one.difference != pb.SHADOW_DIFFERENCE_SAME]
    if len(rows) - len(shown) <= ALIKE_LISTED_MAX:
        shown = list(rows)
    folded = len(shown) > LISTED_MAX and console.width < terminal.UNLIMITED
    columns = [one.column(shown) for one in pictures.decisions(now)]
    if folded:
        columns = pictures.together(shown)
    drawn = table(columns, console.width, headers=headers) if rows else Group()
    if not headers:
        return drawn
    differing = sum(one.difference != pb.SHADOW_DIFFERENCE_SAME for one in rows)
    told = [f"{differing:,} of them differ"] if rows else []
    if folded:
        told.append("those alike share a line: --output wide")
    elif len(shown) < len(rows):
        told.append("those alone are listed, --output json has all")
    foot = footer(len(rows), "ask", told) if rows else Text(NO_ASK)
    sums = (part for one in shadows for part in pictures.shadow(one, console.width))
    return Group(drawn, foot, *sums)
