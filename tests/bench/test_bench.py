"""The benchmarks run without errors on tiny workloads; no test judges how fast anything is."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench import added, cases, messages, preemption_messages, wire
from tests.bench.__main__ import Plan, measure, measure_all
from tests.bench.clusters import Cluster
from tests.bench.curves import svg
from tests.bench.figures import Basis, Case, Metric, Row, Run, Sample, row
from tests.bench.growth import COST, compared
from tests.bench.players import PYTHON, ROOT, surroundings
from tests.bench.profile import read
from tests.bench.quiet import PLACES, Probe, Quiet, Stopwatch, pace, way
from tests.bench.record import Record, change, code, least_pace, load, merged, profiled, save, taken
from tests.bench.report import number
from tests.bench.script import Played, Script
from tests.bench.workloads import Workload, asks, hard, queue, queues_yaml
from tests.effort import TRIES_ALL, drawn

RATE = Metric("placements", "/s", 100, more=True)
WAIT = Metric("wait", "ms", 2, basis=Basis.VALUE)


def measured(
    metric: Metric = RATE,
    value: float = 100,
    cpu_s: float = 1,
    workload: Workload | None = None,
    loop_s: float = 0.1,
) -> Row:
    """Return the line of two equal runs while the calibration loop took so long."""
    subject = workload or Workload(1_000, 10_000, 10)
    run = Run({metric.name: value, "placed": 10_000}, cpu_s, 80)
    case = Case(f"in process: {subject.name}", (metric,), lambda _before: run, subject)
    samples = [Sample(run, loop_s, 1.5)] * 2
    return row(case, metric, samples, samples)


NAMES = [case.name for case in cases.quick()]


@pytest.mark.parametrize("only", [""] if TRIES_ALL else drawn(NAMES, 6))
def test_all_of_it_runs(tmp_path: Path, only: str) -> None:
    output = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.bench", "--quick", "--runs", "1", "--only", only]
    done = subprocess.run(
        [*command, "--output", str(output)],
        cwd=ROOT,
        env=surroundings(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    held = json.loads(output.read_text("utf-8"))
    assert {"processor", "cores", "python", "grpcio", "client"} <= held["machine"].keys()
    chosen = [case for case in cases.quick() if only in case.name]
    wanted = [(case.name, one.name) for case in chosen for one in case.metrics]
    rows = [Row(**one) for one in held["rows"]]
    assert [(one.case, one.metric) for one in rows] == wanted
    assert all(one.median > 0 for one in rows)
    assert all(one.mib > 0 for one in rows if not one.case.startswith("shim: "))


def test_the_client_in_python_plays_the_same_scripts() -> None:
    few = Workload(10, 100, 10)
    paced = wire.run(messages.churn(few, 10, 5), PYTHON)
    assert len(paced.played.waits_ms) == 5
    for script in (
        messages.flood(hard(20, 200, 10), 50),
        messages.resync(few),
        preemption_messages.claims(Cluster(10, 2, claims=5)),
        preemption_messages.quota(Cluster(10, 2)),
    ):
        found = wire.run(script, PYTHON)
        assert found.language == "Python"
        assert found.played.seconds > 0


def test_no_two_cases_have_one_name() -> None:
    for catalogue in (cases.everything(), cases.quick()):
        names = [one.name for one in catalogue]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("leaves", [10, 100, 1_000])
def test_leaves_of_a_hard_workload_stand_three_levels_below_root(leaves: int) -> None:
    workload = hard(1_000, 10_000, leaves)
    paths = {queue(workload, at) for at in range(leaves)}
    assert len(paths) == leaves
    assert {path.count(".") for path in paths} == {3}
    assert queues_yaml(workload).count("name: leaf") == leaves


def test_a_third_of_a_hard_workload_is_constrained_and_a_tenth_wants_gpus() -> None:
    found = [one.spec for one in asks(hard(1_000, 10_000, 10))]
    gpus = [one for one in found if "nvidia.com/gpu" in dict(one.resource)]
    assert len(gpus) == 1_000
    said = [one for one in found if one.constraints.node_selector or one.constraints.required_terms]
    assert 2_000 < len(said) < 3_400
    assert len({one.constraints for one in found}) == 8


def test_a_line_says_whether_the_target_is_reached() -> None:
    assert measured(RATE, 100).reached is True
    assert measured(RATE, 99).reached is False
    assert measured(WAIT, 2).reached is True
    assert measured(WAIT, 3).reached is False
    assert measured(replace(WAIT, target=0), 3).reached is None


def test_a_line_is_compared_with_the_record_by_the_calibration_loop() -> None:
    before = Record("2026-01-01", {}, [measured(RATE, cpu_s=1), measured(WAIT, 4)])
    busy = measured(RATE, 50, cpu_s=1)
    assert change(busy, before) == pytest.approx(1), "waiting is no cost"
    assert change(measured(RATE, cpu_s=2), before) == pytest.approx(2)
    assert change(measured(WAIT, 2), before) == pytest.approx(0.5)
    assert change(measured(RATE, workload=Workload(5, 50, 10)), before) is None
    assert change(busy, None) is None


def test_what_is_over_within_a_moment_took_cpu_time() -> None:
    probe = Probe()
    probe.start()
    try:
        taken = [_moment() for _ in range(50)]
    finally:
        probe.stop()
    assert min(taken) > 0


def _moment() -> float:
    """CPU seconds of well under a tick of Linux's clock."""
    watch = Stopwatch()
    sum(range(1_000))
    return watch.taken()[1]


def test_growth_compares_a_placement_here_with_one_there() -> None:
    def of(placed: int, cpu_s: float, pace: float, mib: int = 80) -> Run:
        return Run({"placed": placed}, cpu_s, mib, pace=pace)

    large = of(100_000, 3.0, 2e-6, 160)
    found = compared(large, [of(10_000, 0.2, 2e-6), of(10_000, 0.4, 2e-6)])
    assert found.values == {COST: pytest.approx(1)}
    assert (found.cpu_s, found.mib) == (3.0, 160)
    beside_busy = compared(large, [of(10_000, 0.6, 6e-6), of(10_000, 0.4, 3e-6)])
    assert beside_busy.values == {COST: pytest.approx(0.6)}
    assert beside_busy.pace == 6e-6, "the busiest moment counts"


def test_a_comparison_is_as_quiet_as_the_more_disturbed_of_its_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of(pace: float) -> wire.WireFigure:
        return wire.WireFigure(Played(0.0, 1.0, 0.1, 0.5, [1.0]), 80, 80, "Go", pace)

    def compare(plain: float, found: float) -> Run:
        monkeypatch.setattr(wire, "run", lambda *_args, **_options: of(plain))
        addition = added.Added("an addition", lambda _script, _before: of(found))
        return added.compared(addition, partial(Script, [], 0), 100, ())

    assert compare(1e-5, 2e-5).pace == compare(2e-5, 1e-5).pace == 2e-5


def test_growth_has_targets_for_nodes_and_for_leaves() -> None:
    found = {
        one.name: one.metrics[0] for one in cases.everything() if one.name.startswith("growth")
    }
    nodes = found["growth: 1,000 nodes, 10 leaves to 10,000 nodes, 10 leaves"]
    leaves = found["growth: 1,000 nodes, 10 leaves to 1,000 nodes, 100 leaves"]
    assert (nodes.target, nodes.reached(1.6), nodes.reached(1.61)) == (1.6, True, False)
    assert (leaves.target, leaves.reached(1.3), leaves.reached(1.5)) == (1.3, True, False)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = [measured(), measured(WAIT, 1)]
    held = profiled(taken(rows), "a case", 100, {"server/core/core.py": 0.5, "grpc": 0.001})
    save(tmp_path / "record.json", held)
    assert load(tmp_path / "record.json") == held
    assert held.profiles == {"a case": {"looks": 100, "shares": {"server/core/core.py": 0.5}}}
    assert load(tmp_path / "other.json") is None


def test_a_record_keeps_what_was_not_measured_anew() -> None:
    first, second = measured(cpu_s=9), measured(workload=Workload(1_000, 10_000, 100))
    gone = measured(workload=Workload(5, 50, 10))
    before = profiled(taken([first, second, gone]), "a case", 1, {"grpc": 1.0})
    again = measured(cpu_s=1)
    after = merged(taken([again]), before, [first.case, second.case])
    assert [(one.case, one.cost) for one in after.rows] == [
        (one.case, one.cost) for one in (again, second)
    ]
    assert after.profiles == before.profiles


def test_a_record_keeps_what_was_less_disturbed_of_the_same_code() -> None:
    quiet, busy, slow = (replace(measured(cpu_s=one), pace=one) for one in (1, 2, 3))
    before = taken([busy])

    def cost_after(anew: Row, held: Record = before) -> float:
        return merged(taken([anew]), held, [busy.case]).rows[0].cost

    assert cost_after(slow) == busy.cost
    assert cost_after(quiet) == quiet.cost
    assert cost_after(slow, replace(before, rows=[busy])) == slow.cost, "another code"
    assert cost_after(slow, taken([replace(busy, pace=0)])) == slow.cost, "nobody looked"


def test_the_digest_of_the_code_follows_every_source(tmp_path: Path) -> None:
    (tmp_path / "server" / "core").mkdir(parents=True)
    one, two = (tmp_path / "server" / name for name in ("core/a.py", "notes.txt"))
    one.write_text("1", "utf-8")
    first = code(tmp_path)
    two.write_text("nothing that runs", "utf-8")
    assert code(tmp_path) == first
    one.write_text("2", "utf-8")
    assert code(tmp_path) != first


def test_a_case_that_fails_loses_no_other() -> None:
    def broken(_before: Sequence[str]) -> Run:
        raise subprocess.CalledProcessError(1, "the core")

    works = Case("works", (RATE,), lambda _before: Run({"placements": 5.0}, 1.0, 1))
    fails = replace(works, name="fails", run=broken)
    rows, failed = measure_all([fails, works], Plan(1, 1), Console(quiet=True))
    assert ([one.case for one in rows], failed) == (["works"], ["fails"])


def test_runs_count_that_neighbours_disturbed_least() -> None:
    busy = iter([2.0, 1.0, 1.9, 1.1, 3.0, 1.0])
    values = iter([50.0, 90.0, 60.0, 80.0, 40.0, 100.0])
    case = Case(
        "a case", (RATE,), lambda _before: Run({"placements": next(values)}, 1, 1, pace=next(busy))
    )
    quiet = Quiet()
    (found,) = measure(case, Plan(2, 5, quiet))
    assert (found.median, found.best, found.runs, found.tries) == (85, 90, 2, 4)
    assert found.of_all == 70
    assert found.pace == pytest.approx(1.05)
    (rest,) = measure(case, Plan(1, 2, quiet))
    assert (rest.median, rest.tries) == (100, 2), "what was quiet before is known"


def test_the_pace_of_another_machine_says_nothing() -> None:
    here = taken([replace(measured(), pace=one) for one in (3.0, 2.0, 0.0)])
    assert least_pace(here) == 2
    assert least_pace(replace(here, machine={"processor": "another"})) == math.inf
    assert least_pace(None) == math.inf


def test_quiet_runs_are_waited_for_so_long_and_no_longer() -> None:
    busy = iter([1.0, 2.0, 3.0, 1.0])
    case = Case("a case", (RATE,), lambda _: Run({"placements": 1.0}, 1, 1, pace=next(busy)))
    (found,) = measure(case, Plan(3, 9, patience=0))
    assert (found.runs, found.tries) == (3, 3)


def test_runs_in_which_nobody_looked_all_count() -> None:
    case = Case("a case", (RATE,), lambda _before: Run({"placements": 1.0}, 1, 1))
    (found,) = measure(case, Plan(3, 9))
    assert (found.runs, found.tries) == (3, 3)


def test_a_walk_comes_to_every_place_before_it_comes_back() -> None:
    following = way()
    seen, at = set(), 0
    while at not in seen:
        seen.add(at)
        at = following[at]
    assert (at, len(seen)) == (0, PLACES)


def test_a_pace_is_that_of_looks_nobody_interrupted() -> None:
    assert pace([]) == 0
    assert pace([1.0, 3.0]) == 2
    assert pace([*[1.0] * 19, 500.0]) == 1


def test_a_record_keeps_nothing_of_another_machine() -> None:
    first, second = measured(), measured(workload=Workload(1_000, 10_000, 100))
    before = replace(taken([first, second]), machine={"processor": "another"})
    after = merged(taken([first]), before, [first.case, second.case])
    assert [one.case for one in after.rows] == [first.case]


def test_numbers_have_three_figures() -> None:
    assert [number(one) for one in (0.5, 12.34, 123.4, 12_345)] == ["0.50", "12.3", "123", "12,345"]


def test_curves_are_the_same_each_time_and_name_what_they_show() -> None:
    sizes = [(1_000, 10), (5_000, 10), (1_000, 100), (1_000, 1_000)]
    rows = [measured(workload=Workload(nodes, 10 * nodes, at)) for nodes, at in sizes]
    drawn = svg(rows)
    assert drawn == svg(rows)
    for word in ("10 leaves", "20 shapes", "1,000", "µs of CPU a placement"):
        assert word in drawn
    assert "100 leaves" not in drawn, "one point is no curve"


def test_a_look_counts_for_the_innermost_module_that_is_ours_or_a_library() -> None:
    own, other = f"{ROOT}/server", "/venv/lib/python3.11/site-packages"
    found = read(
        f"main ({ROOT}/tests/x.py:1);tick ({own}/core/core.py:2);sort (/usr/lib/heapq.py:3) 3\n"
        f"main ({ROOT}/tests/x.py:1);tick ({own}/core/core.py:2);read ({other}/grpc/a/b.py:9) 1\n"
        f"main ({ROOT}/tests/x.py:1) 5\n"
        f"load (<frozen importlib._bootstrap>:1);<module> ({own}/core/core.py:2) 7\n"
    )
    assert found.looks == 4
    assert found.shares == {"server/core/core.py": 0.75, "grpc": 0.25}
