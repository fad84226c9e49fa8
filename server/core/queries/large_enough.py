"""The nodes that are large enough for an ask but excluded by the ask's constraints, and the text about these nodes.

The module only reads the state.
"""

from collections.abc import Sequence
from typing import Final

from server.core.wait_reasons.node_filters import parts
from server.model.asks import Constraints
from server.model.fit import Demand, fits
from server.model.phrases import count, listed, some
from server.model.reports import Excluded
from server.state.constraints import matches, repels
from server.state.nodes import Node
from server.state.partition import Partition

GROUPS_MAX: Final = 2
"""The largest number of groups of excluded nodes in an answer.

All nodes of a group are excluded by the same parts of the constraints.
"""
NAMED_MAX: Final = 3
SEVERAL: Final = 2
TAINT: Final = "taint"
_OF_CLUSTER: Final = "node.kubernetes.io/"
"""The prefix of taints with which Kubernetes marks an unhealthy node. No next step suggests tolerating such taints."""


def excluded(
    partition: Partition, constraints: Constraints, demand: Demand
) -> tuple[Excluded, ...]:
    """Return the nodes that are large enough, grouped by the parts of the constraints and the taints that exclude them.

    The result is empty if the constraints allow a node that is large enough. Nodes that take no placements, or that Kubernetes
    taints as unhealthy, are left out. At most GROUPS_MAX groups are returned: the groups that are excluded by the smallest
    number of parts of the constraints. Of these groups, those with the most nodes that have enough free capacity at present
    come first.
    """
    named = parts(constraints)
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Node]] = {}
    for node in partition.index.nodes.values():
        if not (node.is_open_to(constraints) and fits(demand, node.capacity)):
            continue
        failing = tuple(
            name
            for name, part in named
            if not matches(part, node.labels, node.taints, node.node_id)
        )
        if not failing:
            return ()
        taints = _untolerated(node, constraints)
        if not any(one.startswith(_OF_CLUSTER) for one in taints):
            found.setdefault((failing, taints), []).append(node)
    fewest = min((len(failing) for failing, _ in found), default=0)
    groups = [
        (failing, taints, sorted(nodes, key=lambda node: not fits(demand, node.free)))
        for (failing, taints), nodes in found.items()
        if len(failing) == fewest
    ]
    groups.sort(key=lambda one: (-sum(fits(demand, node.free) for node in one[2]), -len(one[2])))
    return tuple(
        Excluded(failing, taints, tuple(node.node_id for node in nodes))
        for failing, taints, nodes in groups[:GROUPS_MAX]
    )


def _untolerated(node: Node, constraints: Constraints) -> tuple[str, ...]:
    keys = (one.key for one in node.taints if repels((one,), constraints.tolerations))
    return tuple(dict.fromkeys(keys))


# Texts ----------------------------------------------------------------------------------------------------------


def excluded_text(groups: Sequence[Excluded]) -> str:
    """Return a text, for the end of a sentence, that names the nodes that are large enough and says why they are not allowed."""
    return "; ".join(_excluded(one, some(one.nodes, NAMED_MAX), one.taints) for one in groups)


def counted_text(groups: Sequence[Excluded]) -> str:
    """Return a text, for the end of a sentence, that says how many nodes are large enough and why they are not allowed.

    The text has no names and no taints of nodes, for callers that may not see the nodes.
    """
    return "; ".join(_excluded(one, count(len(one.nodes), "node"), ()) for one in groups)


def _excluded(one: Excluded, subject: str, taints: Sequence[str]) -> str:
    many = len(one.nodes) >= SEVERAL
    why = listed([_why(part, taints, many=many) for part in one.parts])
    return f"{subject} {'are' if many else 'is'}, but {why}"


def _why(part: str, taints: Sequence[str], *, many: bool) -> str:
    them = "them" if many else "it"
    match part:
        case "taint":
            their = "their" if many else "its"
            return f"it does not tolerate {their} {_taints(taints)}"
        case "node-selector":
            return f"its node selector excludes {them}"
        case "node-affinity":
            return f"its node affinity excludes {them}"
        case _:
            return "it names other nodes"


def _taints(keys: Sequence[str]) -> str:
    return f"taint{'s' if len(keys) > 1 else ''} {listed(keys)}".rstrip()


def allowing(groups: Sequence[Excluded]) -> list[str]:
    """Return, for each group of nodes, a text with the change of the ask after which the ask may run on these nodes.

    If the group has no node names, the text says "a node".
    """
    return [_allowing(one) for one in groups]


def _allowing(one: Excluded) -> str:
    where = some(one.nodes, NAMED_MAX) or "a node that is large enough"
    steps = [part for part in one.parts if part != TAINT]
    if TAINT not in one.parts:
        return f"{_matching(steps)} {where}"
    taints = _taints(one.taints)
    tolerate = f"tolerate the {taints} of {where}"
    them = "it" if len(one.nodes) < SEVERAL else "them"
    return f"{tolerate} and {_matching(steps)} {them}" if steps else tolerate


def _matching(kept: Sequence[str]) -> str:
    words = {"node-selector": "node selector", "node-affinity": "node affinity"}
    return f"let its {listed([words.get(part, 'list of nodes') for part in kept])} allow"
