"""Live cores and shims export every metric and label that a dashboard, an alert or the table of the guide names."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from scripts.monitoring import dashboards
from server.model.reasons import Code
from server.rpc.following import State
from tests.monitoring.live import Exported, exported

ROOT = Path(__file__).parents[2]
BY_PROMETHEUS = frozenset({"instance", "job", "le"})
"""The labels that Prometheus adds to each series, and the label of buckets."""
ROW = re.compile(r"^\| `(evenhand_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)
VALUES = {"code": {code.value for code in Code} | {"none"}, "state": {one.value for one in State}}


@pytest.fixture(scope="module")
def live() -> Exported:
    return asyncio.run(exported())


def queries() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each query of alerts, panels and variables."""
    text = (ROOT / "deploy" / "monitoring" / "alerts.yaml").read_text()
    for group in yaml.safe_load(text)["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for name, board in dashboards.files().items():
        made = json.loads(board)
        for panel in made["panels"]:
            for target in panel["targets"]:
                place = f"{name} {panel['title']} {target['refId']}"
                yield place, target["expr"].replace("$__rate_interval", "5m")
        for variable in made["templating"]["list"]:
            if variable["type"] == "query":
                found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
                assert found is not None
                yield f"{name} {variable['name']}", f"count by ({found[2]}) ({found[1]})"


QUERIES = dict(queries())


def parts(node: Any) -> Iterator[Any]:
    """Yield an expression and all expressions in it."""
    yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        below = getattr(node, name, None)
        if below is not None and not isinstance(below, str):
            yield from parts(below)
    for below in getattr(node, "args", None) or ():
        yield from parts(below)


def selectors(node: Any) -> list[Any]:
    return [one for one in parts(node) if isinstance(one, promql.VectorSelector)]


def grouping(node: Any) -> Iterator[tuple[Any, list[str]]]:
    """Yield each expression that groups by labels, with these labels."""
    for one in parts(node):
        modifier = getattr(one, "modifier", None)
        if isinstance(one, promql.AggregateExpr) and modifier is not None:
            yield one, modifier.labels
        elif isinstance(one, promql.BinaryExpr) and modifier and modifier.matching:
            yield one, modifier.matching.labels


def brought(node: Any, live: Exported) -> set[str]:
    """Return the labels below a grouping by labels that come from one side of a join (`group_left`)."""
    joins = [
        one
        for one in parts(node)
        if one is not node
        and isinstance(one, promql.BinaryExpr)
        and one.modifier
        and "ManyToOne" in str(one.modifier.card)
    ]
    return {label for join in joins for one in selectors(join) for label in live[one.name]}


def unknown(text: str, live: Exported) -> list[str]:
    """Return the metrics and labels that a query uses, but no core or shim exports."""
    parsed = promql.parse(text)
    found = [one.name for one in selectors(parsed) if one.name not in live]
    if found:
        return found
    for one in selectors(parsed):
        for matcher in one.matchers.matchers:
            if matcher.name not in live[one.name] | BY_PROMETHEUS:
                found.append(f"{one.name}: {matcher.name}")
            allowed = VALUES.get(matcher.name)
            if allowed is not None:
                found += [value for value in matcher.value.split("|") if value not in allowed]
    for one, labels in grouping(parsed):
        for selector in selectors(one):
            lacking = set(labels) - live[selector.name] - BY_PROMETHEUS - brought(one, live)
            found += [f"{selector.name}: {label}" for label in sorted(lacking)]
    return found


def test_each_query_finds_its_metrics_and_labels(live: Exported) -> None:
    assert {place: lacks for place, text in QUERIES.items() if (lacks := unknown(text, live))} == {}


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("evenhand_nodez", ["evenhand_nodez"]),
        ('evenhand_nodes{queue="a"}', ["evenhand_nodes: queue"]),
        ("sum by (queue) (evenhand_nodes)", ["evenhand_nodes: queue"]),
        ('evenhand_waiting_asks{code="no-such-code"}', ["no-such-code"]),
        ("evenhand_nodes and on (queue) evenhand_queue_usage", ["evenhand_nodes: queue"]),
        (
            "sum by (group, node) (evenhand_replica_position * on (job) group_left (group) evenhand_core_group)",
            ["evenhand_replica_position: node", "evenhand_core_group: node"],
        ),
        ("histogram_quantile(0.9, max by (le, code) (rate(evenhand_wait_seconds_bucket[5m])))", []),
    ],
)
def test_a_query_with_a_wrong_name_is_found(text: str, lacks: list[str], live: Exported) -> None:
    assert unknown(text, live) == lacks


def test_the_tables_of_the_pages_are_what_is_exported(live: Exported) -> None:
    written: dict[str, tuple[str, str]] = {}
    for page in ("user-guide.md", "high-availability.md"):
        text = (ROOT / "docs" / page).read_text()
        written |= {name: (kind, labels) for name, kind, labels in ROW.findall(text)}
    shown = {name: re.sub(r"_(bucket|sum|count)$", "", name) for name in live}
    assert set(shown.values()) == written.keys()
    for name, family in shown.items():
        kind, labels = written[family]
        assert (kind == "histogram") == (name != family)
        if not family.startswith("evenhand_shim_"):
            names = labels.split(": ")[0]  # The values of a label may follow its name.
            assert set(re.findall(r"`(\w+)`", names)) == live[name], name
