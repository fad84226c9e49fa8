"""The growth curves of docs/performance.md, drawn from the record; equal figures give an equal file."""

import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.bench.figures import Row
from tests.bench.players import ROOT

PICTURE = ROOT / "docs" / "performance.svg"
INK = "#7d8590"
"""A colour that is legible on white and on black, because the page can be either."""
COLOURS = ("#2f81f7", "#db6d28", "#2da44e")
MARKS = ("o", "s", "^")
Curve = Mapping[int, float]
"""CPU microseconds per placement, by the number of nodes or leaves."""


def curves(rows: Sequence[Row]) -> tuple[dict[str, Curve], dict[str, Curve]]:
    """Return the curves over the number of nodes, and those over the number of leaves; a curve needs two points."""
    plain, hard, weighted = chosen(rows), chosen(rows, hard=True), chosen(rows, by_weight=True)
    by_nodes = {
        f"{leaves:,} leaves{kind}": {nodes: found[nodes, at] for nodes, at in found if at == leaves}
        for found, leaves, kind in ((plain, 10, ""), (plain, 100, ""), (hard, 1_000, ", hard"))
    }
    by_leaves = {
        name: {at: found[nodes, at] for nodes, at in found if nodes == 1_000}
        for name, found in (("20 shapes", plain), ("by weight", weighted), ("hard", hard))
    }
    return _drawable(by_nodes), _drawable(by_leaves)


def chosen(
    rows: Sequence[Row], *, hard: bool = False, by_weight: bool = False
) -> dict[tuple[int, int], Row]:
    """Return the rows of placements in one process for workloads of 20 shapes, by number of nodes and leaves."""
    wanted: Mapping[str, object] = {
        "shapes": 20,
        "levels": 3 if hard else 1,
        "gpus": hard,
        "constrained": hard,
        "by_weight": by_weight,
        "node_sort": "fair",
    }
    return {
        (one.subject["nodes"], one.subject["leaves"]): one
        for one in rows
        if one.case.startswith("in process: ") and wanted.items() <= one.subject.items()
    }


def _drawable(found: Mapping[str, Mapping[int, Row]]) -> dict[str, Curve]:
    return {
        name: {at: points[at].cpu_us_each for at in sorted(points)}
        for name, points in found.items()
        if len(points) > 1
    }


def svg(rows: Sequence[Row]) -> str:
    """Return the curves as an SVG picture."""
    by_nodes, by_leaves = curves(rows)
    with _style():
        figure = Figure(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        _draw(left, by_nodes, "nodes, with ten times as many asks")
        _draw(right, by_leaves, "leaf queues, on 1,000 nodes with 10,000 asks")
        left.set_ylabel("µs of CPU a placement")
        held = io.StringIO()
        figure.savefig(
            held, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    return "\n".join(line.rstrip() for line in held.getvalue().splitlines()) + "\n"


def _style() -> AbstractContextManager[None]:
    """Return a style with fixed names inside the picture, because the default names are random."""
    return mpl.rc_context(
        {
            "svg.hashsalt": "evenhand",
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "font.size": 11,
            "text.color": INK,
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "grid.color": INK,
        }
    )


def _draw(axes: Axes, found: Mapping[str, Curve], what: str) -> None:
    for (name, points), colour, mark in zip(found.items(), COLOURS, MARKS, strict=False):
        axes.plot([*points], [*points.values()], color=colour, marker=mark, linewidth=2, label=name)
    axes.set_xlabel(what)
    axes.set_xscale("log")
    ticks = sorted({at for points in found.values() for at in points})
    axes.set_xticks(ticks, [f"{at:,}" for at in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if found:
        axes.legend(frameon=False)


def draw(rows: Sequence[Row], path: Path = PICTURE) -> None:
    """Write the picture to a file."""
    path.write_text(svg(rows), "utf-8")
