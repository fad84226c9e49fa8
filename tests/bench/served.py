"""`evenhand` with a probe, which prints its looks at the end as a line of JSON on standard output."""

import json

from evenhand_cli import app
from tests.bench.quiet import PROBE

if __name__ == "__main__":
    PROBE.start()
    try:
        app.main()
    finally:
        PROBE.stop()
        print(json.dumps(PROBE.looks), flush=True)  # noqa: T201 - the answer
