"""The recorded figures as a file: the machine, the day and the rows; and the comparison of a row with its recorded value."""

import datetime
import hashlib
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.bench.figures import Row
from tests.bench.players import ROOT, player

RECORD = ROOT / "docs" / "performance.json"
VERSIONS = ("grpcio", "protobuf", "numpy")
LEAST = 0.01
MEASURED = ("evenhand_console", "proto", "server", "shim_client", "tests/bench")
"""Folders whose source code determines what is measured and how."""
SOURCES = (".go", ".proto", ".py")


@dataclass(frozen=True, slots=True)
class Record:
    """Rows by case and metric, in the order of the report."""

    date: str
    machine: Mapping[str, Any]
    rows: Sequence[Row]
    profiles: Mapping[str, Any] = field(default_factory=dict)
    """For each profiled case, the number of `looks`, and `shares` of the time by module."""

    @property
    def by_name(self) -> dict[tuple[str, str], Row]:
        """Return the rows by case and metric."""
        return {(one.case, one.metric): one for one in self.rows}


def load(path: Path = RECORD) -> Record | None:
    """Return the record, if there is one."""
    if not path.exists():
        return None
    held = json.loads(path.read_text("utf-8"))
    held["rows"] = [Row(**one) for one in held["rows"]]
    return Record(**held)


def taken(rows: Sequence[Row]) -> Record:
    """Return a record of these rows with today's date, this code's digest and this machine."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    measured = code()
    return Record(today, machine(), [replace(one, day=today, code=measured) for one in rows])


def save(path: Path, held: Record) -> None:
    """Write a record to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(held), indent=1) + "\n", "utf-8")


def least_pace(held: Record | None) -> float:
    """Return the pace of the least disturbed case on this machine; infinite when nothing was recorded on it."""
    paces = [one.pace for one in held.rows if one.pace] if held else []
    return min(paces) if paces and held and held.machine == machine() else math.inf


def machine() -> dict[str, Any]:
    """Return a description of the machine and the versions with which the figures were measured."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "client": player().language,
        **{name: importlib.metadata.version(name) for name in VERSIONS},
    }


def code(root: Path = ROOT) -> str:
    """Return a digest of the source code that is measured and of the code that measures it."""
    found = (one for folder in MEASURED for one in (root / folder).rglob("*"))
    sources = (one for one in found if one.suffix in SOURCES and not one.name.startswith("test_"))
    said = hashlib.sha256()
    for path in sorted(sources):
        held = path.read_bytes()
        said.update(f"{path.relative_to(root).as_posix()} {len(held)}\n".encode())
        said.update(held)
    return said.hexdigest()[:16]


def _processor() -> str:
    """Return the first processor's name with its generation, which a virtual machine's name leaves out."""
    first = Path("/proc/cpuinfo").read_text("utf-8").partition("\n\n")[0]
    lines = (line.partition(":") for line in first.splitlines())
    said = {key.strip(): value.strip() for key, _, value in lines}
    name = said.get("model name") or platform.processor() or "unknown"
    if "cpu family" not in said:
        return name
    return f"{name} (family {said['cpu family']}, model {said['model']})"


def merged(new: Record, before: Record | None, order: Sequence[str]) -> Record:
    """Return the record to write: the new rows, and the recorded rows of cases that were not run this time, in the report's order.

    When a case was also measured before with equal code, the less disturbed measurement is kept, whatever its
    figures are. Rows of another machine or of other versions are not kept.
    """
    if before is None or before.machine != new.machine:
        return new
    anew = {one.case: one for one in new.rows}
    kept = [one for one in before.rows if not _gives_way(one, anew.get(one.case))]
    stay = {one.case for one in kept}
    renewed = [one for one in new.rows if one.case not in stay]
    rows = sorted(
        (one for one in [*renewed, *kept] if one.case in order),
        key=lambda one: order.index(one.case),
    )
    return replace(new, rows=rows, profiles=before.profiles)


def _gives_way(held: Row, anew: Row | None) -> bool:
    if anew is None:
        return False
    return held.code != anew.code or not 0 < held.pace <= anew.pace


def profiled(before: Record, case: str, looks: int, shares: Mapping[str, float]) -> Record:
    """Return the record with the profile of one more case; parts below a hundredth are left out."""
    told = {home: round(share, 3) for home, share in shares.items() if share >= LEAST}
    return replace(before, profiles={**before.profiles, case: {"looks": looks, "shares": told}})


def change(row: Row, before: Record | None) -> float | None:
    """Return the present cost as a multiple of the recorded cost, None when nothing was recorded."""
    held = before.by_name.get((row.case, row.metric)) if before else None
    return row.cost / held.cost if held and held.cost else None
