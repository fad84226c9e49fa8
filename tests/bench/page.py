"""The figures of docs/performance.md, which `python -m tests.bench.page` writes from the record."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.bench import curves, record
from tests.bench.figures import Row
from tests.bench.players import ROOT
from tests.bench.record import Record
from tests.bench.report import figures

PAGE = ROOT / "docs" / "performance.md"
PARTS: Mapping[str, tuple[str, ...]] = {
    "in process": ("in process: ",),
    "churn": ("in process, churn",),
    "scrape": ("in process, scrape",),
    "growth": ("growth: ",),
    "gRPC": ("gRPC, ",),
    "preemption": ("in process, ",),
    "shim": ("shim: ",),
}
"""Tables of the page, by the beginnings of the names of their cases; the first that matches contains the case."""
HOMES = 8
"""Maximum number of modules and libraries that a profile names."""


def part(case: str) -> str:
    """Return the name of the table that has the case."""
    return next(name for name, starts in PARTS.items() if case.startswith(starts))


def written(text: str, held: Record) -> str:
    """Return the page with everything between `<!-- NAME -->` and `<!-- /NAME -->` made from the record."""
    found = {name: _table([one for one in held.rows if part(one.case) == name]) for name in PARTS}
    found["machine"] = _machine(held)
    found["profiles"] = _profiles(held.profiles)
    for name, said in found.items():
        text = _replaced(text, name, said)
    return text


def _replaced(text: str, name: str, said: str) -> str:
    before, begin, rest = text.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    assert all((begin, end)), f"the page has no place for {name}"
    return f"{before}{begin}{said}{end}{after}"


def _table(rows: Sequence[Row]) -> str:
    lines = [
        "| workload | | median | best | runs | of all | target | reached | CPU s | µs each | MiB | |",
        "|---|---|--:|--:|--:|--:|--:|---|--:|--:|--:|---|",
    ]
    return "\n".join([*lines, *_lines(rows)]) + "\n"


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    last = ""
    for one in rows:
        case = "" if one.case == last else one.case.removeprefix("in process: ")
        yield f"| {' | '.join((case, *figures(one), one.note))} |"
        last = one.case


def _machine(held: Record) -> str:
    facts = held.machine
    days = sorted({one.day for one in held.rows if one.day} or {held.date})
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    loads = [one.load for one in held.rows if one.load]
    load = f"load {min(loads):.1f} to {max(loads):.1f}" if loads else "load unknown"
    paces = [1e6 * one.pace for one in held.rows if one.pace]
    looks = f"; a look {min(paces):.1f} to {max(paces):.1f} µs" if paces else ""
    versions = ", ".join(f"{name} {facts[name]}" for name in record.VERSIONS)
    return (
        f"{when}: {facts['processor']}, {facts['cores']} cores, {facts['memory_gib']} GiB, "
        f"{facts['system']}; Python {facts['python']}, {versions}; client in {facts['client']}; "
        f"{load}{looks}.\n"
    )


def _profiles(found: Mapping[str, Any]) -> str:
    lines = ["| workload | where its time goes |", "|---|---|"]
    for case, one in found.items():
        shares = [f"`{home}` {share:.0%}" for home, share in one["shares"].items()]
        lines.append(f"| {case} | {', '.join(shares[:HOMES])} |")
    return "\n".join(lines) + "\n"


def renew() -> None:
    """Write the figures and curves of the page from the record."""
    held = record.load()
    assert held is not None, f"{record.RECORD} holds no figures: make bench ARGS=--record"
    PAGE.write_text(written(PAGE.read_text("utf-8"), held), "utf-8")
    curves.draw(held.rows)


if __name__ == "__main__":
    renew()
