"""Start `evenhand shim` unchanged in a process that also writes to a journal which messages it received from which core.

    python -m tests.faults.pairs.shim JOURNAL NAME shim ...

The lines are `joined` and `left` for each session with a core, and `heard` for each answer that places or releases
pods. Each has the name of the shim, the process, the core's address, and the number of the session in this process.
"""

import os
import sys
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Any

from shim_client.core_client.connection import Connection
from shim_client.core_client.streams import Session
from tests.faults.journal import Journal


def listen(journal: Journal, name: str) -> None:
    """Write a line for the beginning and the end of each session, and for each answer with decisions."""
    where: ContextVar[dict[str, Any]] = ContextVar("where")
    numbers = count(1)
    attempt: Any = Connection._one_session
    hold: Any = Connection._hold
    decided: Any = Session._pod_decisions

    async def attempted(self: Connection, core: Any, listener: Any) -> Any:
        facts = {"by": name, "process": os.getpid(), "core": core.address.target}
        where.set({**facts, "session": next(numbers)})
        return await attempt(self, core, listener)

    async def held(self: Connection, session: Session, channel: Any, listener: Any) -> None:
        journal.write("joined", epoch=self._epoch, **where.get())
        try:
            await hold(self, session, channel, listener)
        finally:
            journal.write("left", **where.get())

    def heard(self: Session, response: Any) -> Any:
        new = [one.allocationKey for one in response.new]
        released = [one.allocationKey for one in response.released]
        if new or released:
            facts = {"epoch": response.epoch, "own": self._epoch, **where.get()}
            journal.write("heard", new=new, released=released, **facts)
        return decided(self, response)

    Connection._one_session = attempted  # type: ignore[method-assign]
    Connection._hold = held  # type: ignore[method-assign]
    Session._pod_decisions = heard  # type: ignore[method-assign]


def main(arguments: list[str]) -> None:
    """Prepare the process, then run the command line."""
    listen(Journal(Path(arguments[0])), arguments[1])
    from evenhand_cli.app import main as evenhand  # noqa: PLC0415 - after the sessions are watched

    sys.argv = ["evenhand", *arguments[2:]]
    evenhand()


if __name__ == "__main__":
    main(sys.argv[1:])
