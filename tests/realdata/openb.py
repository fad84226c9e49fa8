"""The openb data of a real GPU cluster, read from its folder, as events for the core."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.model.asks import AskSpec, Constraints
from server.model.events import ApplicationAdded, AskAdded, Event, ManagerRegistered, NodeAdded
from server.model.resources import resource

RM = "openb"
MIB = 1 << 20
PRIORITIES = {"LS": 100, "Guaranteed": 100, "Burstable": 50, "BE": 0}


def directory() -> Path:
    """Return the folder of the data: EVENHAND_OPENB, or a folder beside the project. Skips the test without data."""
    beside = Path(__file__).parents[2].parent / "shared" / "data" / "openb"
    found = Path(os.environ.get("EVENHAND_OPENB", beside))
    if not (found / "pods.csv").exists():
        pytest.skip("the openb data is not here (EVENHAND_OPENB names its directory)")
    return found


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (directory() / name).open(newline="") as file:
        yield from csv.DictReader(file)


def nodes() -> list[Event]:
    """Return all nodes, with their GPU model as a label."""
    return [
        NodeAdded(
            RM,
            row["sn"],
            resource(
                {
                    "vcore": int(row["cpu_milli"]),
                    "memory": int(row["memory_mib"]) * MIB,
                    "gpu": int(row["gpu"]),
                    "pods": 110,
                }
            ),
            labels=(("gpu-model", row["model"]),) if row["model"] else (),
        )
        for row in _rows("nodes.csv")
    ]


def asks(*, models: bool = True) -> list[AskAdded]:
    """Return all pods as asks in file order; every third GPU pod wants one of the models that the nodes have."""
    known = sorted({row["model"] for row in _rows("nodes.csv") if row["model"]})
    specs: dict[tuple[str, ...], AskSpec] = {}
    made = []
    for at, row in enumerate(_rows("pods.csv")):
        wants = known[at % len(known)] if models and int(row["num_gpu"]) and at % 3 == 0 else ""
        shape = (row["cpu_milli"], row["memory_mib"], row["num_gpu"], row["qos"], wants)
        if shape not in specs:
            specs[shape] = _spec(row, wants)
        made.append(AskAdded(RM, row["name"], f"app-{row['qos']}", specs[shape]))
    return made


def _spec(row: dict[str, str], model: str) -> AskSpec:
    request = {
        "vcore": int(row["cpu_milli"]),
        "memory": int(row["memory_mib"]) * MIB,
        "gpu": int(row["num_gpu"]),
        "pods": 1,
    }
    selector = (("gpu-model", model),) if model else ()
    return AskSpec(
        resource(request), PRIORITIES[row["qos"]], constraints=Constraints(node_selector=selector)
    )


def set_up() -> list[Event]:
    """Return the events that bring the manager, the nodes and one application for each class of service."""
    applications: list[Event] = [
        ApplicationAdded(RM, f"app-{qos}", f"root.{qos.lower()}") for qos in PRIORITIES
    ]
    return [ManagerRegistered(RM), *nodes(), *applications]
