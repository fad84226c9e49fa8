"""`evenhand decisions --shadow`: what shadows decided beside the settings in force."""

from collections.abc import Iterable

from rich.console import Group
from rich.text import Text

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import decisions_pb2_grpc
from evenhand_cli.commands.filters import Filter, check_filters
from evenhand_cli.connect import Core
from evenhand_cli.output import Form, plain_all, show
from evenhand_cli.paging import every
from evenhand_cli.render import shadows as pictures
from evenhand_cli.render.tables import footer

NONE = (
    "no partition has a shadow: write the settings that you think of under `preemption.shadow`, "
    "and both are shown here"
)


def list_shadows(core: Core, partition: str, queue: str, output: Form) -> None:
    """The latest word on each ask for which either side decided something, and sums."""
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
    value = {
        "decisions": plain_all(found),
        "shadows": plain_all(shadows),
        "taken_at_ms": taken,
    } | core.pictures.value()
    if not shadows:
        show(output, value, lambda _console: Text(NONE))
        return
    differing = sum(one.difference != pb.SHADOW_DIFFERENCE_SAME for one in found)
    foot = footer(len(found), "ask", [f"{differing:,} of them differ"] if found else [])
    show(
        output,
        value,
        lambda console: Group(
            pictures.decisions(found, taken, console.width),
            foot,
            *(part for one in shadows for part in pictures.shadow(one, console.width)),
        ),
    )
