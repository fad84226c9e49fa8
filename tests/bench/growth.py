"""How the cost of a placement grows with nodes and with leaves: lines of the report that follow from others."""

from collections.abc import Iterator, Mapping, Sequence

from tests.bench.figures import Metric, Row

NODES_TIMES = 1.6
"""From 1,000 nodes and 10,000 asks to 10,000 and 100,000."""
LEAVES_TIMES = 1.3
"""From 10 to 100 leaves."""


def chosen(
    rows: Sequence[Row], *, hard: bool = False, by_weight: bool = False
) -> dict[tuple[int, int], Row]:
    """By nodes and leaves, what placing in process costs, for workloads of 20 shapes."""
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


def growth(rows: Sequence[Row]) -> Iterator[Row]:
    """Each pair that was measured, by the CPU time of a placement in calibration loops.

    The rows ran one after the other, beside unlike neighbours, who slow those loops, too.
    """
    found = chosen(rows)
    for leaves in (10, 100):
        yield from _pair(found, (1_000, leaves), (10_000, leaves), NODES_TIMES)
    for nodes in (1_000, 5_000, 10_000):
        yield from _pair(found, (nodes, 10), (nodes, 100), LEAVES_TIMES)


def _pair(
    found: Mapping[tuple[int, int], Row],
    small: tuple[int, int],
    large: tuple[int, int],
    target: float,
) -> Iterator[Row]:
    if small not in found or large not in found:
        return
    before, after = found[small], found[large]
    times = _loops_each(after) / _loops_each(before)
    metric = Metric("cost of a placement", "times", target)
    name = "growth: {:,} nodes, {} leaves to {:,} nodes, {} leaves".format(*small, *large)
    runs = min(before.runs, after.runs)
    reached = metric.reached(times)
    yield Row(
        name, metric.name, metric.unit, metric.more, target, reached, runs, times, times, cost=times
    )


def _loops_each(one: Row) -> float:
    return one.cost / float(one.subject["asks"])
