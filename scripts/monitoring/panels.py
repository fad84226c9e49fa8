"""The parts of the dashboards: panels with queries to Prometheus, in the units of Evenhand's metrics."""

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Final, NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models.common import BigValueGraphMode
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    VariableRefresh,
    VariableSort,
)

PROMETHEUS: Final = DataSourceRef(type_val="prometheus", uid="${source}")
"""The data source that the user chooses with the variable ``source``."""
CORE: Final = 'instance=~"$core"'
"""The selector of the cores that the user chooses. A follower has the same numbers as its leader, so that queries take the maximum."""
QUEUE: Final = f'{CORE}, partition=~"$partition", queue=~"$queue"'
PARTITION: Final = f'{CORE}, partition=~"$partition"'
WIDTH: Final = 12
HEIGHT: Final = 8
STAT_WIDTH: Final = 4
STAT_HEIGHT: Final = 4


class Query(NamedTuple):
    """A query and the name of its lines, in which ``{{label}}`` stands for the value of a label."""

    expression: str
    legend: str


def lines(
    title: str, description: str, queries: Sequence[Query], unit: str = "short"
) -> timeseries.Panel:
    """Return a panel with lines over time. ``unit`` is a unit of Grafana, such as `s` or `bytes`."""
    panel = timeseries.Panel().title(title).description(description).datasource(PROMETHEUS)
    panel = panel.unit(unit).min(0).span(WIDTH).height(HEIGHT)
    for reference, query in zip(ascii_uppercase, queries, strict=False):
        panel = panel.with_target(_target(query, reference))
    return panel


def number(title: str, description: str, expression: str, unit: str = "short") -> stat.Panel:
    """Return a panel with the present value of a query."""
    panel = stat.Panel().title(title).description(description).datasource(PROMETHEUS)
    panel = panel.unit(unit).span(STAT_WIDTH).height(STAT_HEIGHT)
    panel = panel.graph_mode(BigValueGraphMode.AREA)
    latest = common.ReduceDataOptions().calcs(["lastNotNull"])
    return panel.reduce_options(latest).with_target(_target(Query(expression, ""), "A"))


def quantiles(title: str, description: str, metric: str, where: str, by: str) -> timeseries.Panel:
    """Return a panel with the median, the 90th and the 99th percentile of a histogram of seconds, by the given labels."""
    labels = f"{by}, le" if by else "le"
    rate = f"max by ({labels}) (rate({metric}_bucket{{{where}}}[$__rate_interval]))"
    name = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(",") if label)
    queries = [
        Query(f"histogram_quantile({part}, {rate})", f"{name} {word}".strip())
        for part, word in ((0.5, "median"), (0.9, "90 %"), (0.99, "99 %"))
    ]
    return lines(title, description, queries, "s")


def board(name: str, title: str, description: str, variables: Sequence[str]) -> dashboard.Dashboard:
    """Return an empty dashboard with the choice of a data source, of cores, and of the labels in ``variables``."""
    made = dashboard.Dashboard(f"Evenhand: {title}").uid(f"evenhand-{name}")
    made = made.description(description).tags(["evenhand"]).refresh("30s").time("now-6h", "now")
    made = made.timezone("browser").readonly()
    made = made.with_variable(
        dashboard.DatasourceVariable("source").type("prometheus").label("Data source")
    )
    made = made.with_variable(_choice("core", "instance", "evenhand_replica_position"))
    for label in variables:
        made = made.with_variable(_choice(label, label, "evenhand_queue_usage"))
    return made


def _choice(name: str, label: str, metric: str) -> dashboard.QueryVariable:
    variable = dashboard.QueryVariable(name).label(name.capitalize()).datasource(PROMETHEUS)
    variable = variable.query(f"label_values({metric}, {label})").sort(
        VariableSort.ALPHABETICAL_ASC
    )
    variable = variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    return variable.multi(True).include_all(True).all_value(".*")  # noqa: FBT003 - Grafana's builders


def _target(query: Query, reference: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expression).legend_format(query.legend)
    return target.ref_id(reference).datasource(PROMETHEUS)
