"""The folders of tests by the run that `scripts/run_tests.py` makes their tests in."""

from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
REAL: Final = frozenset({"kubernetes", "compose", "faults", "real", "browser"})
"""The folders whose tests are marked `real`, because they wait for other programs."""
API_SERVER: Final = frozenset({"kubernetes"})
"""The folders in `REAL` whose tests share an API server. These run one by one, in a run beside that of the other folders."""
UNAIDED: Final = frozenset(
    {
        "faults/test_judge.py",
        "faults/test_kubernetes_judge.py",
        "faults/test_pairs_judge.py",
        "faults/test_schedule.py",
        "kubernetes/test_backend_command.py",
        "kubernetes/test_backend_lease.py",
        "kubernetes/test_backend_requests.py",
        "kubernetes/test_backend_watching.py",
    }
)
"""The modules in folders of `REAL` that need no other program: their tests run side by side."""
LONGEST: Final = frozenset(
    {"bench/test_bench.py", "preemption/test_attacks.py", "simulation/test_everything.py"}
)
"""The modules whose tests take longest. They begin first, so that no worker makes one of them when the others have nothing left."""
ALONE: Final = frozenset({"rpc", "shim"})
"""The folders that have modules with the mark `alone`."""


def only(wanted: frozenset[str]) -> tuple[str, ...]:
    """Return the options of pytest that collect the tests of these folders only.

    Without them each run would import the tests of all others, too.
    """
    others = sorted(path.name for path in HERE.iterdir() if path.is_dir())
    return tuple(f"--ignore=tests/{name}" for name in others if name not in wanted)
