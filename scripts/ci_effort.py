"""The effort of the random tests in CI: `python -m scripts.ci_effort` prints a percentage that fits the speed of the machine.

CI has to end within 90 minutes. On a machine of usual speed it tries all random cases. On a slow machine all cases would take
longer than that, so CI tries fewer there. `EVENHAND_EFFORT=100 make test` tries all cases on any machine.
"""

import sys
from typing import Final

from tests.bench.calibration import calibrate

SLOW_S: Final = 0.075
"""The processor seconds of `calibrate` from which a machine is slow. The machine of docs/performance.json takes 0.05."""
ALL: Final = 100
FEWER: Final = 40
"""The effort in percent on a slow machine."""


def effort(seconds: float) -> int:
    """Return the effort in percent for a machine on which `calibrate` takes this number of processor seconds."""
    return FEWER if seconds >= SLOW_S else ALL


if __name__ == "__main__":
    sys.stdout.write(f"{effort(calibrate())}\n")
