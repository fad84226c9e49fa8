"""Kills and cut networks against two cores and two shims: `python -m tests.faults.pairs --seed 7 --kills 50 --cuts 21`.

Exit code 1 when a check fails. The run has its own namespaces, like that of `python -m tests.faults`.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.faults.__main__ import enter_namespaces, told
from tests.faults.pairs.judge import judged, report
from tests.faults.pairs.run import Run
from tests.faults.pairs.schedule import schedule

MODULE: Final = "tests.faults.pairs"


def options() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--cuts", type=int, default=0)
    parser.add_argument("--nats", action="store_true", help="let a log of NATS join the cores")
    parser.add_argument("--folder", type=Path, help="where everything of the run is kept")
    return parser.parse_args()


def main() -> int:
    """Run one seed and judge it."""
    given = options()
    enter_namespaces(MODULE)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        run = Run(folder, given.seed, durable=bool(given.seed % 2), nats=given.nats)
        turns = schedule(given.seed, given.kills, given.cuts, nats=given.nats)
        evidence = asyncio.run(run.evidence(turns))
    again = f"--seed {given.seed} --kills {given.kills} --cuts {given.cuts}"
    again += " --nats" if given.nats else ""
    return told(MODULE, "\n".join(report(given.seed, evidence)), judged(evidence), again)


if __name__ == "__main__":
    sys.exit(main())
