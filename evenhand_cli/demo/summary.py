"""The summary at the end of a demonstration: as plain values for JSON, and as text for users."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from evenhand.v1 import inspect_pb2
from evenhand_cli.demo.facts import TELLING_S, Picture
from evenhand_cli.demo.preempted import Preempted, preempted_lines, preempted_value
from evenhand_cli.demo.reasons import UNDECIDED, WaitingGroup
from evenhand_cli.demo.screen import Stage
from evenhand_cli.output import plain_all
from evenhand_cli.render import findings as render_findings
from evenhand_cli.render.amounts import heading, in_order, percent
from evenhand_cli.render.columns import Column, table
from evenhand_cli.render.words import plural
from server.model.phrases import agreeing
from shim_client.embedded.faults import ObjectFault

BECAUSE_LEAST = 20
"""Smallest width of the column with sentences about waiting pods."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All facts of the summary."""

    stage: Stage
    picture: Picture
    settled: bool
    stopped: bool
    """Whether the user ended the demonstration."""
    seconds: float
    placing_seconds: float
    waiting: tuple[WaitingGroup, ...]
    findings: tuple[inspect_pb2.Finding, ...]
    before: int
    """Number of pods that ran when the demonstration began."""
    preempted: Preempted
    faults: tuple[ObjectFault, ...] = ()
    """Faults of the cluster's objects: refused objects, and objects with parts that have no effect."""

    def refused(self) -> int:
        """Return the number of objects that were refused."""
        return sum(fault.objects for fault in self.faults if fault.refused)

    def consistent(self) -> bool:
        """Return whether core and cluster agree, every pod is counted, and the core's state is consistent."""
        return not self.disagreements() and not render_findings.count_error_findings(self.findings)

    def disagreements(self) -> list[str]:
        """Return the differences between cluster and core, one sentence each."""
        pods, counts = self.picture.pods, self.picture.summary.counts
        asks = sum(group.pods for group in self.waiting if group.key)
        mute = [group for group in self.waiting if group.code in UNDECIDED]
        told = []
        if pods.bound != counts.allocations:
            told.append(
                f"{plural(pods.bound, 'pod', 'are')} bound, the core has {plural(counts.allocations, 'allocation')}"
            )
        if asks != counts.waiting_asks:
            told.append(f"pods that are asks: {asks:,}; the core has {counts.waiting_asks:,}")
        told += [f"{plural(one.pods, 'pod')} without a reason, such as {one.pod}" for one in mute]
        return told


def outcome_value(outcome: Outcome) -> dict[str, Any]:
    """Return the summary as JSON."""
    picture, seconds = outcome.picture, outcome.placing_seconds
    counts, pods = picture.summary.counts, picture.pods
    placed = counts.placed_total
    return {
        "cluster": outcome.stage.cluster,
        "core": outcome.stage.address,
        "settled": outcome.settled,
        "consistent": outcome.consistent(),
        "disagreements": outcome.disagreements(),
        "seconds": round(outcome.seconds, 3),
        "nodes": {"total": counts.nodes, "schedulable": counts.nodes - counts.draining_nodes},
        "pods": {
            "total": pods.total,
            "before": outcome.before,
            "bound": pods.bound,
            "finished": pods.finished,
            "pending": pods.pending,
            "refused": pods.refused,
            "others": pods.others,
        },
        "placements": {
            "total": placed,
            "seconds": round(seconds, 3),
            "per_second": round(placed / seconds, 1) if seconds > 0 else 0.0,
        },
        "preemption": preempted_value(outcome.preempted),
        "capacity": {
            kind: picture.summary.capacity[kind] for kind in sorted(picture.summary.capacity)
        },
        "usage": {kind: picture.summary.usage[kind] for kind in sorted(picture.summary.usage)},
        "faults": [asdict(fault) for fault in outcome.faults],
        "waiting": [asdict(group) for group in outcome.waiting],
        "findings": plain_all(outcome.findings),
    }


def outcome_picture(outcome: Outcome, width: int) -> RenderableType:
    """Return the summary as text for users."""
    picture = outcome.picture
    parts: list[RenderableType] = [_verdict(outcome), _placing(outcome)]
    parts += preempted_lines(outcome.preempted)
    usage, capacity = picture.summary.usage, picture.summary.capacity
    shares = [
        f"{heading(kind)} {percent(usage.get(kind, 0), capacity[kind])}"
        for kind in in_order(capacity)
        if capacity[kind]
    ]
    if shares:
        parts.append(Text.assemble(("in use: ", "faint"), ", ".join(shares)))
    if outcome.faults:
        title = "\nfaults of the cluster's objects"
        parts += [Text(title, style="heading"), fault_table(outcome.faults, width)]
    if outcome.waiting:
        parts += [Text("\nwhat waits, and why", style="heading"), _groups(outcome.waiting, width)]
    if outcome.findings:
        answer = inspect_pb2.CheckConsistencyResponse(findings=outcome.findings)
        parts.append(render_findings.diagnosis(answer))
    return Group(*parts)


def _verdict(outcome: Outcome) -> Text:
    if not outcome.consistent():
        return Text("\n".join(["the state does not agree:", *outcome.disagreements()]), style="bad")
    if not outcome.settled:
        return Text("stopped before everything had its place or its reason", style="warn")
    if outcome.refused():
        refused = outcome.refused()
        told = f"settled, but {plural(refused, 'object')} of the cluster {agreeing('were', refused)} refused"
        return Text(f"{told}: see below", style="bad")
    return Text("settled: every pod has its node or its reason; the state agrees", style="good")


def _placing(outcome: Outcome) -> Text:
    picture, seconds = outcome.picture, outcome.placing_seconds
    pods, counts = picture.pods, picture.summary.counts
    placed = counts.placed_total
    rate = f" ({placed / seconds:,.0f}/s)" if seconds >= TELLING_S else ""
    text = Text(f"{plural(placed, 'placement')} within {max(seconds, 0.1):.1f} s{rate}: ")
    text.append(f"{pods.bound:,} of {plural(pods.total, 'pod')} {agreeing('run', pods.bound)}")
    text.append(f" on {plural(counts.nodes, 'node')}")
    waiting = picture.waiting()
    text.append(f", {waiting:,} wait" if waiting else ", none waits")
    return text.append(f"; {outcome.before:,} ran before" if outcome.before else "")


def fault_table(faults: Sequence[ObjectFault], width: int) -> RenderableType:
    """Return a table of the faults of objects, with one object as an example of each."""
    effects = ("no effect", "refused")
    columns = (
        Column("what", [Text(effects[one.refused], style="bad") for one in faults]),
        Column("objects", [f"{one.objects:,}" for one in faults], right=True),
        Column("such as", [f"{one.kind} {one.example}" for one in faults]),
        Column("because", [one.message for one in faults], least=BECAUSE_LEAST),
    )
    return table(columns, width, noted=False)


def _groups(groups: Sequence[WaitingGroup], width: int) -> RenderableType:
    """Return a table of the reasons why pods wait, with one pod as an example of each reason.

    The sentence about a reason describes the example; for other pods the details may differ.
    """
    columns = (
        Column("pods", [f"{one.pods:,}" for one in groups], right=True),
        Column("reason", [Text(one.code, style="warn") for one in groups]),
        Column("such as", [one.pod for one in groups]),
        Column("because", [one.why for one in groups], least=BECAUSE_LEAST),
    )
    return table(columns, width, noted=False)
