"""Faults against core and shim on a real API server: `python -m tests.faults.kubernetes --seed 7 --minutes 3`.

Exit code 1 when a check fails. The run has its own namespaces, like that of `python -m tests.faults`.
"""

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.faults.__main__ import enter_namespaces, options, repeat, told
from tests.faults.cluster import SECOND
from tests.faults.kubernetes.evidence import ClusterEvidence
from tests.faults.kubernetes.judge import judged
from tests.faults.kubernetes.queues import CORES, queues
from tests.faults.kubernetes.world import KubernetesWorld
from tests.faults.run import Run
from tests.faults.schedule import schedule

MODULE: Final = "tests.faults.kubernetes"
KINDS: Final = (
    "core-killed",
    "core-stopped",
    "shim-killed",
    "shim-stopped",
    "net-slow",
    "net-stalled",
    "net-cut",
    "net-half-closed",
    "disk-full",
    "disk-failing",
    "clock-ahead",
)


def main() -> int:
    """Run one seed and judge it."""
    given = options(MODULE, __doc__, KINDS)
    enter_namespaces(MODULE)
    with tempfile.TemporaryDirectory() as temporary:
        evidence = evidence_of(given, given.folder or Path(temporary))
    return told(MODULE, report(given.seed, evidence), judged(evidence), repeat(given))


def evidence_of(given: argparse.Namespace, folder: Path) -> ClusterEvidence:
    """Run one seed in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder, given.seed, durable=bool(given.seed % 2))
    run.files.queues = queues(CORES)
    del run.files.journals[SECOND.rm_id]  # This run has only one manager.
    world = KubernetesWorld(run.files, run.core.port, given.seed)
    run.world = world
    dealt = schedule(given.seed, given.minutes * 60, tuple(given.only or KINDS))
    faults = [replace(fault, apply_amid=False) for fault in dealt]
    try:
        return world.collected(run.evidence(faults))
    finally:
        run.put_away()


def report(seed: int, evidence: ClusterEvidence) -> str:
    """Return a few lines that describe the run."""
    run = evidence.run
    lines = Counter(line["kind"] for line in run.journal)
    changes = Counter(line["what"] for line in run.journal if line["kind"] == "change")
    kinds = {window.kind for window in run.windows}
    return "\n".join(
        [
            f"seed {seed}, durable: {'yes' if run.durable else 'no'}",
            f"faults   {len(run.windows)} of {len(kinds)} kinds, {len(run.exits)} ends of the core, "
            f"{len(evidence.shim_exits)} of the shim",
            f"cluster  {', '.join(f'{times} {what}' for what, times in sorted(changes.items()))}",
            f"pods     {lines['ask']} made, {lines['placed']} bound, {lines['evict']} evicted, "
            f"{len(evidence.api_says)} run and {len(evidence.waiting)} wait in the end",
            f"log      {run.verified.lines} lines, {run.verified.missing} missing, "
            f"{sum(len(part.decided) for part in run.log)} decisions",
            f"replays  {len(run.replays)}",
            f"settled  after {run.settling_ms} ms, pauses of the machine {run.pauses_ms} ms",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
