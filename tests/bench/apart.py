"""Measurements in a separate process, so that peak memory is that of one run, and no earlier run affects it.

Run as ``python -m tests.bench.apart`` with the order as JSON on standard input; prints one JSON line.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tests.bench import inprocess, jobs, preemption, scrape
from tests.bench.clusters import Cluster
from tests.bench.figures import Run
from tests.bench.players import ROOT, surroundings
from tests.bench.preemption import Figure
from tests.bench.processes import own_peak_mib
from tests.bench.quiet import PROBE
from tests.bench.workloads import Workload

_TIMEOUT_S = 1_800

PLACING: Mapping[str, Callable[[Workload], Run]] = {
    "place": inprocess.place,
    "churn": inprocess.churn,
    "scrape": scrape.scraped,
}
PREEMPTING: Mapping[str, Callable[[Cluster], list[Figure]]] = {
    "claims": preemption.claims,
    "one claim": preemption.one_claim,
    "one round": preemption.one_round,
    "quota": preemption.quota,
    "shares": preemption.shares,
    "gang": jobs.planned,
    "gang refused": jobs.refused,
}


def run(measure: str, subject: Workload | Cluster, before: Sequence[str] = ()) -> Run:
    """Run a measurement once in a separate process; a profiler's command can be put before its command."""
    done = subprocess.run(
        [*before, sys.executable, "-m", "tests.bench.apart"],
        input=json.dumps({"measure": measure, "subject": asdict(subject)}).encode(),
        stdout=subprocess.PIPE,
        check=True,
        timeout=_TIMEOUT_S,
        cwd=ROOT,
        env=surroundings(),
    )
    # A profiler also writes lines to this output.
    said = next(line for line in done.stdout.splitlines() if line.startswith(b"{"))
    return Run(**json.loads(said))


def _here(measure: str, subject: Mapping[str, Any]) -> Run:
    if measure in PLACING:
        return PLACING[measure](Workload(**subject))
    found = PREEMPTING[measure](Cluster(**subject))
    cold = max(one.cold_ms for one in found)
    note = f"{found[0].count:,} of them" + (f", the first snapshot {cold:,.0f} ms" if cold else "")
    cpu_s = statistics.median(one.cpu_ms for one in found) / 1_000
    wall = statistics.median(one.wall_ms for one in found)
    return Run({"time": wall}, cpu_s, own_peak_mib(), note)


if __name__ == "__main__":
    told = json.loads(sys.stdin.read())
    PROBE.start()
    found = _here(told["measure"], told["subject"])
    PROBE.stop()
    print(json.dumps(asdict(replace(found, pace=PROBE.pace))))  # noqa: T201 - the answer
