"""Record what views read from a core with pods, waits, a claim and a history: `python -m tests.console.record [NAME...]`.

The names of tests/console/replies are those of views. A new view is recorded here, too, and its tests need no core.
Without names, all views are recorded.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from evenhand.v1 import decisions_pb2, decisions_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from evenhand_cli.connect import Core, connected_core
from evenhand_cli.contexts import Context
from evenhand_console.query import query_of
from evenhand_console.views import VIEWS
from tests.cli.processes import ROOT, address_of, running, until
from tests.console import replies

CLUSTER: Final = ROOT / "examples" / "clusters" / "claim"
WAITING_POD: Final = "WAITING-POD"
"""Placeholder for the key of a waiting pod for which no capacity is kept."""
DECISION: Final = "DECISION"
"""Placeholder for the id of the first decision."""
ADDRESSES: Final = {
    "tenant": {"queue": "root.batch"},
    "queue": {"queue": "root.shop"},
    "why": {"key": WAITING_POD},
    "decision": {"id": DECISION},
}
"""The parameters with which a view is recorded, where the defaults show nothing."""


def main() -> None:
    """Run a core and a shim, and record the views once nothing more happens."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state = ["--state-dir", str(folder), "--history-sample", "1s"]
        serve = ["serve", "--listen", "127.0.0.1:0", *state]
        with running(serve, folder / "core.log") as core:
            address = address_of(core, folder / "core.log")
            shim = ["shim", "--cluster", str(CLUSTER), "--core", address]
            opened = connected_core(Context(core=address), "", 30.0)
            with running(shim, folder / "shim.log"), opened as asked:
                until(lambda: is_ready(asked))
                _record(asked, sys.argv[1:])


def is_ready(core: Core) -> bool:
    """Return whether every decision has ended, a pod waits, and a node is kept for another one."""
    if decisions(core, open_only=True):
        return False
    states = {one.state for one in asks_and_pods(core)}
    return {
        inspect_pb2.ALLOCATION_STATE_WAITING,
        inspect_pb2.ALLOCATION_STATE_PLEDGED,
        inspect_pb2.ALLOCATION_STATE_ALLOCATED,
    } <= states


def asks_and_pods(core: Core) -> list[inspect_pb2.Allocation]:
    """Return the asks and the pods of a small cluster."""
    stub = inspect_pb2_grpc.InspectServiceStub(core.channel)
    request = inspect_pb2.ListAllocationsRequest(include_asks=True)
    return list(core.ask(stub.ListAllocations, request).allocations)


def _record(core: Core, names: Sequence[str]) -> None:
    found = known(core)
    for view in VIEWS:
        if names and view.name not in names:
            continue
        address = ADDRESSES.get(view.name, {})
        given = {name: found.get(value, value) for name, value in address.items()}.items()
        replies.save(view.name, view.read(core, query_of(view.path, view.parameters, given)))


def known(core: Core) -> dict[str, str]:
    """Return the values for the placeholders in ADDRESSES."""
    return {WAITING_POD: _waiting_pod(core), DECISION: _decision(core)}


def _waiting_pod(core: Core) -> str:
    waiting = inspect_pb2.ALLOCATION_STATE_WAITING
    return next(one.allocation_key for one in asks_and_pods(core) if one.state == waiting)


def _decision(core: Core) -> str:
    return decisions(core)[0].decision_id


def decisions(core: Core, *, open_only: bool = False) -> Sequence[decisions_pb2.Decision]:
    """Return the decisions of a core, or only those that are not complete."""
    stub = decisions_pb2_grpc.DecisionServiceStub(core.channel)
    request = decisions_pb2.ListDecisionsRequest(open_only=open_only)
    return core.ask(stub.ListDecisions, request).decisions


if __name__ == "__main__":
    main()
