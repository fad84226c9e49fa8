"""A decision in one line: the victims, their node, and the ask that gets the capacity."""

import re
from collections.abc import Iterable, Sequence

from evenhand.v1 import decisions_pb2 as pb
from evenhand_cli.render.words import plural
from server.model.phrases import agreeing
from server.model.policies import facts

NAMED_MAX = 2
"""Default of the maximum number of victims, and of asks, that a line names."""
STAY = (pb.VICTIM_STATE_VETOED, pb.VICTIM_STATE_KEPT)
"""States of victims that keep running."""
ROW_LEAST = 3
"""Smallest number of consecutively numbered names that are written as a range, such as `a-1 to a-3`."""
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})")


def decision_line(one: pb.Decision, most: int = NAMED_MAX) -> str:
    """Return a line about a decision for an ask, of a quota run, or of a surplus reclaim.

    The line names at most `most` asks and at most `most` victims.
    """
    if facts(one.policy).shrinks_partition:
        return f"queues above their shares give back {victims(one, most)}"
    if one.HasField("quota_run"):
        return f"{one.quota_run.queue} is reduced to its max without {victims(one, most)}"
    for_asks = _for_asks(one, most)
    nodes = [each.node_id for each in one.beneficiaries if each.node_id]
    evicted = _evicted(one)
    if not evicted:
        return f"capacity on {_where(nodes)} is kept{for_asks}; no pod is evicted"
    left = [each.node_id for each in evicted if each.node_id] or nodes
    return f"{victims(one, most)} {agreeing('are', len(evicted))} evicted from {_where(left)}{for_asks}"


def _for_asks(one: pb.Decision, most: int) -> str:
    """Return the asks of a decision as the end of a sentence.

    Return "" when all these asks are unknown, for example after a restart.
    """
    if not one.beneficiaries:
        return ""
    asks = [each.name or each.allocation_key for each in one.beneficiaries]
    return f" for {listed(asks, most)} of {one.beneficiaries[0].queue}"


def _where(nodes: Iterable[str]) -> str:
    """Return the name of the node if there is only one node; otherwise return the number of nodes."""
    different = list(dict.fromkeys(nodes))
    return different[0] if len(different) == 1 else plural(len(different), "node")


def victims(one: pb.Decision, most: int) -> str:
    """Return the names of the first victims with their queues, and the number of further victims."""
    evicted = _evicted(one)
    if not evicted:
        return "any victim"
    names = [each.name or each.allocation_key for each in evicted]
    queues = ", ".join(dict.fromkeys(each.queue for each in evicted))
    return f"{listed(names, most, one.victims_left_out)} of {queues}"


def listed(names: Iterable[str], most: int, more: int = 0) -> str:
    """Return names as text.

    Consecutively numbered names are written as a range: `a-1 to a-3, b and 2 more`. The list of names is not empty.

    At most `most` ranges and single names are shown. `more` is the number of further names, which are not known.
    """
    found = _rows(names)
    shown = [_row(row) for row in found[:most]]
    rest = sum(map(len, found[most:])) + more
    *first, last = [*shown, *([f"{rest:,} more"] if rest else [])]
    return f"{', '.join(first)} and {last}" if first else last


def _rows(names: Iterable[str]) -> list[list[str]]:
    found: list[list[str]] = []
    for name in names:
        if found and _follows(found[-1][-1], name):
            found[-1].append(name)
        else:
            found.append([name])
    return [
        part
        for row in found
        for part in ([row] if len(row) >= ROW_LEAST else [[one] for one in row])
    ]


def _row(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _follows(before: str, name: str) -> bool:
    first, second = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(name)
    if first is None or second is None:
        return False
    return first[1] == second[1] and int(second[2]) == int(first[2]) + 1


def _evicted(one: pb.Decision) -> list[pb.Victim]:
    return [each for each in one.victims if each.state not in STAY]
