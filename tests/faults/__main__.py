"""Faults against the whole process: `python -m tests.faults --seed 7 --minutes 5`; exit code 1 when a check fails.

The run has its own mount and process namespaces: its disk is a tmpfs, and no process outlives it. When the command
ends early, by any signal, the run ends too.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, Never

from tests.faults.effects import excuse, has_struck
from tests.faults.evidence import Evidence
from tests.faults.judge import judged
from tests.faults.run import Run
from tests.faults.schedule import KINDS, schedule

MODULE: Final = "tests.faults"
NAMESPACE: Final = "EVENHAND_FAULTS_NAMESPACE"
"""The variable that tells the run in its namespaces the descriptor of the pipe to the command outside."""
CLEAR_S: Final = 60.0
"""The longest time, in seconds, in which a run that is ended early stops its processes in order."""
UNSHARE: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def namespace() -> tuple[str, ...]:
    """Return the command that runs a command in new namespaces; a user other than root becomes root inside."""
    return UNSHARE if os.geteuid() == 0 else (*UNSHARE, "--user", "--map-root-user")


def run_in_namespace(module: str) -> int:
    """Run this command again in new namespaces and return its exit code; signals to end it are passed on.

    `unshare` passes on no signal. A pipe tells the run to end. When this process is killed, the pipe closes, which
    also ends the run.
    """
    watched, told = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(told, b"!"))
    again = [*namespace(), sys.executable, "-m", module, *sys.argv[1:]]
    environment = {**os.environ, NAMESPACE: str(watched)}
    with subprocess.Popen(again, env=environment, pass_fds=[watched]) as run:
        return run.wait()


def end_with(watched: int) -> None:
    """End this process in order when a pipe has data or closes; when the orderly end takes too long, exit at once."""

    def end(_number: int, _frame: FrameType | None) -> Never:
        raise SystemExit(128 + signal.SIGTERM)

    def watch() -> None:
        os.read(watched, 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        time.sleep(CLEAR_S)
        os._exit(128 + signal.SIGKILL)

    os.set_inheritable(watched, False)  # noqa: FBT003
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


def options(module: str, description: str | None, kinds: Sequence[str]) -> argparse.Namespace:
    """Return the options of a run, which may have these kinds of faults."""
    parser = argparse.ArgumentParser(f"python -m {module}", description=description)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--only", nargs="+", choices=kinds, help="faults of these kinds alone")
    parser.add_argument("--folder", type=Path, help="where everything of the run is kept")
    return parser.parse_args()


def enter_namespaces(module: str) -> None:
    """Continue in new namespaces; the process outside the namespaces ends with the exit code of the process inside."""
    if NAMESPACE not in os.environ:
        sys.exit(run_in_namespace(module))
    end_with(int(os.environ[NAMESPACE]))


def main() -> int:
    """Run one seed and judge it."""
    given = options(MODULE, __doc__, KINDS)
    enter_namespaces(MODULE)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        faults = schedule(given.seed, given.minutes * 60, tuple(given.only or KINDS))
        run = Run(folder, given.seed, durable=bool(given.seed % 2))
        try:
            evidence = run.evidence(faults)
        finally:
            run.put_away()
    return told(MODULE, report(given.seed, evidence), judged(evidence), repeat(given))


def told(module: str, report: str, wrong: Sequence[str], again: str) -> int:
    """Print the report of a run, what was wrong, and then the options that repeat the run; return the exit code."""
    sys.stdout.write("\n".join([report, *wrong, ""]))
    if wrong:
        sys.stdout.write(f"to repeat it: python -m {module} {again}\n")
    return 1 if wrong else 0


def repeat(given: argparse.Namespace) -> str:
    """Return the options that repeat a run."""
    only = f" --only {' '.join(given.only)}" if given.only else ""
    return f"--seed {given.seed} --minutes {given.minutes:g}{only}"


def excused(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Return the faults that had no effect, each with the reason why that is acceptable."""
    for one in evidence.windows:
        if not has_struck(one.kind, one.seen):
            yield one.kind, excuse(one.kind, one.seen) or "nothing"


def report(seed: int, evidence: Evidence) -> str:
    """Return a few lines that describe the run."""
    kinds = Counter(line["kind"] for line in evidence.journal)
    faults = Counter(window.kind for window in evidence.windows)
    lines = [
        f"seed {seed}, durable: {'yes' if evidence.durable else 'no'}",
        f"faults   {sum(faults.values())} of {len(faults)} kinds, {len(evidence.exits)} ends of the core",
        *(f"excused  {kind}: {why}" for kind, why in excused(evidence)),
        f"pods     {kinds['ask']} asked, {kinds['placed']} placed, {kinds['evict']} evicted, "
        f"{kinds['session']} sessions",
        f"log      {evidence.verified.lines} lines, {evidence.verified.missing} missing, "
        f"{sum(len(part.decided) for part in evidence.log)} decisions",
        f"operator {len(evidence.applied)} configurations applied, looked at {len(evidence.in_force)} times after starts",
        f"replays  {len(evidence.replays)}",
        f"memory   {max((mib for _, mib in evidence.resident_mib), default=0)} MiB at the most",
        f"settled  after {evidence.settling_ms} ms, pauses of the machine {evidence.pauses_ms} ms",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
