"""promtool accepts the alert rules. Each alert fires on series with its problem, and does not fire on series without the problem."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.monitoring import rules
from scripts.real import promtool
from tests.monitoring.live import preempting
from tests.monitoring.test_files import ALERTS
from tests.real.needs import absent

pytestmark = pytest.mark.real
CASES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text())
WELL = {'evenhand_replica_position{instance="a"}': "1x200"}
"""The series with which EvenhandCoreAbsent does not fire, for the cases of the other alerts."""


def _of_groups(metric: str, of_b: str | None) -> dict[str, str]:
    """Return the series of a well core of group `a`, and of one of group `b`, whose metric has these values; with None, it is away."""
    values = {"a": "1x10"} if of_b is None else {"a": "1x10", "b": of_b}
    series = {metric.format(instance): those for instance, those in values.items()}
    for instance in values:
        for group in ("a", "b"):
            name = f'evenhand_core_group{{instance="{instance}", group="{group}"}}'
            series[name] = f"{int(group == instance)}x10"
    return series


_POSITION = 'evenhand_replica_position{{instance="{}"}}'
_LEADS = 'evenhand_replica_state{{instance="{}", state="leader"}}'
IN_GROUPS: dict[str, Any] = {
    "EvenhandCoreAbsent": {
        "at": "10m",
        "fires": _of_groups(_POSITION, None),
        "silent": _of_groups(_POSITION, "1x10"),
    },
    "EvenhandNoLeader": {
        "at": "10m",
        "fires": _of_groups(_LEADS, "0x10"),
        "silent": _of_groups(_LEADS, "1x10"),
    },
}
"""The cases of a group of cores that is away or has no leader, while the other group is well."""

_INTRODUCED = {
    'evenhand_core_group{instance="a"}': "1x10",
    'evenhand_core_group{instance="b", group="a"}': "0x10",
    'evenhand_core_group{instance="b", group="b"}': "1x10",
    'evenhand_replica_position{instance="a"}': "1x10",
    'evenhand_replica_position{instance="b"}': "1x10",
    'evenhand_replica_state{instance="a", state="leader"}': "1x10",
    'evenhand_replica_state{instance="b", state="leader"}': "1x10",
}
"""The series of two well groups while the first table is introduced: the core of group `a` has no table yet."""
_WAITING = {
    'evenhand_core_group{instance="c", group="a"}': "1x10",
    'evenhand_core_group{instance="c", group="b"}': "0x10",
    'evenhand_replica_state{instance="c", state="leader"}': "0x10",
}
"""The series of a second core of group `a`, which has the table and does not lead."""


@pytest.fixture(scope="module")
def tool() -> Path:
    return promtool.find() or absent("promtool is not here: make real")


def ran(*command: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def trial(name: str, case: Any, *, fires: bool) -> dict[str, Any]:
    """Return one test of promtool. With `fires`, exactly the named alert fires on the series of the case, else no alert fires."""
    series = case["fires" if fires else "silent"]
    if name != "EvenhandCoreAbsent":
        series = WELL | series
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1}] if fires else []
    return {
        "interval": "1m",
        "name": f"{name} {'fires' if fires else 'is silent'}",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": case["at"],
                "exp_samples": expected,
            }
        ],
    }


def written(folder: Path, cases: dict[str, Any]) -> Path:
    (folder / "alerts.yaml").write_text(rules.plain())
    tests = [
        trial(name, case, fires=fires) for name, case in cases.items() for fires in (True, False)
    ]
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": ["alerts.yaml"], "tests": tests}))
    return file


def test_promtool_accepts_the_rules(tool: Path) -> None:
    done = ran(tool, "check", "rules", rules.ALERTS)
    assert done.returncode == 0, done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_each_alert_fires_and_is_silent(tool: Path, tmp_path: Path) -> None:
    assert CASES.keys() == ALERTS.keys()
    done = ran(tool, "test", "rules", written(tmp_path, CASES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_of_several_groups_of_cores_is_seen_away(tool: Path, tmp_path: Path) -> None:
    done = ran(tool, "test", "rules", written(tmp_path, IN_GROUPS))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("more", [{}, _WAITING])
def test_no_group_is_missed_while_a_core_has_no_table_yet(
    more: dict[str, str], tool: Path, tmp_path: Path
) -> None:
    case = {"at": "10m", "silent": _INTRODUCED | more}
    file = written(tmp_path, {})
    tests = [trial("EvenhandCoreAbsent", case, fires=False)]
    file.write_text(yaml.safe_dump({"rule_files": ["alerts.yaml"], "tests": tests}))
    done = ran(tool, "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["EvenhandFollowerBehind", "EvenhandThrashing"])
def test_promtool_notices_when_an_alert_does_not_do_as_expected(
    name: str, tool: Path, tmp_path: Path
) -> None:
    case = CASES[name]
    turned = {**case, "fires": case["silent"], "silent": case["fires"]}
    assert ran(tool, "test", "rules", written(tmp_path, {name: turned})).returncode != 0


def test_promtool_accepts_the_metrics_of_a_core(tool: Path) -> None:
    """Promtool also refuses names and units against the conventions of Prometheus."""
    for text in preempting():
        done = subprocess.run(
            [tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
