"""The nodes that a constraint allows.

A constraint is evaluated once for each kind of node, and the result is stored as a mask (design 6.10).

A node's *kind* consists of its taints and of its values of the labels that the constraint mentions. For a constraint that lists
node names, these names are stored instead, so that ten thousand DaemonSet pods need no masks.

A constraint that requires a label to have one of several values is *anchored* at these values. Only nodes with such a value are
ever evaluated for the constraint. The label index finds these nodes. If there are at most FEW_NODES such nodes, their names are
stored. Thus ten thousand pods that each select a different host need no masks either. A changed node is evaluated for an anchored
constraint only if the constraint is anchored at the value of one of the node's labels.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from server.model.asks import Constraints, HostPort, Operator, Requirement, Taint, Term, Toleration
from server.model.fit import Demand
from server.model.resources import PORT_PREFIX
from server.state.labels import LabelIndex, NodeSet
from server.state.nodes import Node, NodeEntry
from server.state.types import PORT_CAPACITY, ResourceTypes

Kind = tuple[tuple[str | None, ...], tuple[Taint, ...]]
"""A node's values of the label keys that a constraint mentions, and its taints."""

Anchor = tuple[tuple[str, str], ...]
"""Pairs of a label and a value. The constraint allows only nodes that have at least one of these labels with its value."""

FEW_NODES: Final = 8
"""The largest number of nodes for which a constraint stores their names.

For more nodes, a constraint stores a mask.
"""
ANCHORS_MAX: Final = 4
"""The largest number of pairs of a selector that are tried as anchors, and the largest number of terms that may together have one anchor.

Each label key that is tried may need a pass over the nodes.
"""

_REPELLING = frozenset({"NoSchedule", "NoExecute"})
_COMPARING = frozenset({"Gt", "Lt"})
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INT64_MAX: Final = 2**63 - 1
_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - an address in a pod's manifest, nothing listens


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether this toleration covers this taint, by the rules of Kubernetes."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in _COMPARING:
        return bool(toleration.key) and _is_beyond(toleration, taint.value)
    return bool(toleration.key) and toleration.value == taint.value


def _is_beyond(toleration: Toleration, value: str) -> bool:
    """Return whether a taint's value is greater (Gt) or less (Lt) than the toleration's value.

    Return False if one of the two values is not a whole number. As in Kubernetes, a whole number has no leading zero, no plus
    sign and at most 64 bits.
    """
    if not (_WHOLE.fullmatch(value) and _WHOLE.fullmatch(toleration.value)):
        return False
    have, want = int(value), int(toleration.value)
    if not all(-_INT64_MAX - 1 <= one <= _INT64_MAX for one in (have, want)):
        return False
    return have > want if toleration.operator == "Gt" else have < want


def repels(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Return whether one of the taints keeps away a pod with these tolerations.

    Such a taint has the effect NoSchedule or NoExecute, and no toleration covers it.
    """
    return any(
        taint.effect in _REPELLING and not any(tolerates(one, taint) for one in tolerations)
        for taint in taints
    )


def _compares(requirement: Requirement, value: str | None) -> bool:
    """Return whether a label's value is greater (Gt) or less (Lt) than the required whole number.

    Return False if one of the two values is not a whole number.
    """
    try:
        have, want = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return have > want if requirement.operator is Operator.GT else have < want


def holds(requirement: Requirement, value: str | None) -> bool:
    """Return whether one requirement holds for a label's value. The value is None if the label is absent."""
    operator = requirement.operator
    if operator is Operator.IN:
        return value in requirement.values
    if operator is Operator.NOT_IN:
        return value not in requirement.values
    if operator is Operator.EXISTS:
        return value is not None
    if operator is Operator.DOES_NOT_EXIST:
        return value is None
    return _compares(requirement, value)


def term_holds(term: Term, labels: Mapping[str, str | None], node_id: str) -> bool:
    """Return whether a term holds. An empty term matches nothing, as in Kubernetes."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(holds(one, labels.get(one.key)) for one in term.match_expressions) and all(
        one.key == "metadata.name" and holds(one, node_id) for one in term.match_fields
    )


def matches(
    constraints: Constraints,
    labels: Mapping[str, str | None],
    taints: Iterable[Taint],
    node_id: str,
) -> bool:
    """Return whether the labels, taints and name of a node satisfy the constraint. Ports and free capacity are not checked."""
    if repels(taints, constraints.tolerations):
        return False
    if any(labels.get(key) != value for key, value in constraints.node_selector):
        return False
    terms = constraints.required_terms
    if terms and not any(term_holds(term, labels, node_id) for term in terms):
        return False
    return names_allow(constraints, node_id)


def names_allow(constraints: Constraints, node_id: str) -> bool:
    """Return whether the parts of a constraint that name nodes allow the node with this id."""
    if node_id in constraints.excluded_nodes:
        return False
    if constraints.allowed_nodes and node_id not in constraints.allowed_nodes:
        return False
    return (not constraints.required_node or node_id == constraints.required_node) and (
        not constraints.node_name or node_id == constraints.node_name
    )


def named_nodes(constraints: Constraints) -> tuple[str, ...] | None:
    """Return the names of the only nodes that a constraint can allow. Return None if the constraint lists no names."""
    if constraints.required_node:
        return (constraints.required_node,)
    if constraints.node_name:
        return (constraints.node_name,)
    return constraints.allowed_nodes or _fields_name(constraints)


def _fields_name(constraints: Constraints) -> tuple[str, ...] | None:
    """Return the names in each term's first `metadata.name In [...]`.

    Return None if a term has no such field, or if no name is found.
    """
    names: dict[str, None] = {}
    for term in constraints.required_terms:
        fields = [one for one in term.match_fields if one.operator is Operator.IN]
        if not fields:
            return None
        names.update(dict.fromkeys(fields[0].values))
    return tuple(names) or None


def _per_name(constraints: Constraints) -> bool:
    """Return whether a constraint can give different verdicts on nodes of one kind, because it reads, for example, the name of the node."""
    return bool(constraints.excluded_nodes) or any(
        term.match_fields for term in constraints.required_terms
    )


def _anchors(constraints: Constraints) -> list[Anchor]:
    """Return the possible anchors of a constraint: each of the first pairs of its selector, and one anchor for all its terms together.

    The terms have an anchor only if there are at most ANCHORS_MAX terms and each term has an `In` requirement.
    """
    found: list[Anchor] = [(pair,) for pair in constraints.node_selector[:ANCHORS_MAX]]
    terms = [_term_anchor(term) for term in constraints.required_terms]
    known = [one for one in terms if one is not None]
    if terms and len(known) == len(terms) <= ANCHORS_MAX:
        found.append(tuple(dict.fromkeys(pair for one in known for pair in one)))
    return found


def _term_anchor(term: Term) -> Anchor | None:
    """Return the label and values of a term's first `In` requirement, or None."""
    for one in term.match_expressions:
        if one.operator is Operator.IN:
            return tuple((one.key, value) for value in one.values)
    return None


def mentioned(constraints: Constraints) -> list[str]:
    """Return the label keys that a constraint reads."""
    keys = [key for key, _ in constraints.node_selector]
    keys += [one.key for term in constraints.required_terms for one in term.match_expressions]
    return keys


def port_demand(ports: Iterable[HostPort], types: ResourceTypes) -> Demand:
    """Return the demand of host ports, as synthetic resources (design 6.10).

    A port on all addresses takes the whole capacity that a node has of the port's synthetic resource. A port on a single
    address takes one unit of that capacity.
    """
    wanted: dict[int, int] = {}
    for port in sorted(set(ports), key=lambda one: (one.protocol, one.port, one.host_ip)):
        for name, units, capacity in port_units(port):
            index = types.intern(name, capacity)
            wanted[index] = min(wanted.get(index, 0) + units, capacity)
    return tuple(wanted.items())


def port_units(port: HostPort) -> tuple[tuple[str, int, int], ...]:
    """Return the synthetic resources that one host port takes, as (name, amount taken, capacity of a node).

    The first resource is for the port itself. If the port names an address, a second resource is for the port at that address.
    """
    name = f"{PORT_PREFIX}{port.protocol or 'TCP'}/{port.port}"
    if port.host_ip in _ANY_ADDRESS:
        return ((name, PORT_CAPACITY, PORT_CAPACITY),)
    return (name, 1, PORT_CAPACITY), (f"{name}/{port.host_ip}", 1, 1)


class NodeMask:
    """The verdict of one constraint on every node.

    The verdict is stored as one byte for each node slot, or as the names of the few nodes that the constraint can allow.
    """

    __slots__ = (
        "allowed",
        "anchor",
        "constraints",
        "cursor",
        "failed",
        "failed_at",
        "heap",
        "keys",
        "log_epoch",
        "names",
        "per_name",
        "users",
        "verdicts",
    )

    def __init__(self, constraints: Constraints) -> None:
        self.constraints = constraints
        self.names = named_nodes(constraints)
        """The names that the constraint lists, or the names of the nodes at its ``anchor`` if these are few.

        If ``names`` is None, ``allowed`` decides.
        """
        self.anchor: Anchor | None = None
        self.keys = tuple(sorted(set(mentioned(constraints))))
        self.per_name = _per_name(constraints)
        self.verdicts: dict[Kind, bool] = {}
        """The verdict for each kind of node, if the verdict depends on the kind alone."""
        self.allowed = bytearray()
        self.users = 0
        self.heap: list[NodeEntry] | None = None
        """A heap with only the allowed nodes.

        This heap is built when searches for the constraint's classes have passed over too many unsuitable nodes of the shared
        heap.
        """
        self.cursor = 0
        """The position up to which the heap has read the log of nodes (see `AskClass`)."""
        self.log_epoch = -1
        """The value of `NodeIndex.epoch` when the log of nodes was last read."""
        self.failed: Demand | None = None
        """The last demand for which no allowed node had capacity."""
        self.failed_at = (-1, 0)
        """The value of `NodeIndex.epoch` and the length of the log of nodes when ``failed`` was recorded.

        While both are unchanged, no node has gained capacity.
        """

    def allows(self, node: Node) -> bool:
        """Return whether the constraint allows its asks to run on a node. Free capacity is not checked."""
        if self.names is None:
            return bool(self.allowed[node.slot])
        return node.node_id in self.names and matches(
            self.constraints, node.labels, node.taints, node.node_id
        )

    def judge(self, node: Node) -> None:
        """Evaluate one node for this mask, which must have one byte for each slot."""
        self.allowed[node.slot] = self._verdict(node)

    def _verdict(self, node: Node) -> bool:
        if self.per_name:
            return matches(self.constraints, node.labels, node.taints, node.node_id)
        kind = tuple(map(node.labels.get, self.keys)), node.taints
        verdict = self.verdicts.get(kind)
        if verdict is None:
            verdict = matches(self.constraints, node.labels, node.taints, node.node_id)
            self.verdicts[kind] = verdict
        return verdict


class ConstraintIndex:
    """All live constraints with their masks.

    An anchor is a set of pairs of a label and a value. The constraint allows only nodes that have at least one of these pairs. A
    constraint with an anchor is evaluated for a new or changed node only if the node has, or had, one of these pairs. A
    constraint that lists node names needs no update. Any other constraint is evaluated for each new or changed node
    (`node_changed`).
    """

    __slots__ = ("_anchored", "_labels", "_slots", "_unanchored", "masks")

    def __init__(self) -> None:
        self._labels = LabelIndex()
        self._anchored: dict[tuple[str, str], dict[NodeMask, None]] = {}
        self._unanchored: dict[NodeMask, None] = {}
        self._slots = 0
        self.masks: dict[Constraints, NodeMask] = {}

    def acquire(self, constraints: Constraints) -> NodeMask:
        """Return the mask of a constraint. A new mask is evaluated for the nodes that the constraint can allow."""
        mask = self.masks.get(constraints)
        if mask is None:
            mask = self.masks[constraints] = NodeMask(constraints)
            if mask.names is None:
                self._anchor(mask)
        mask.users += 1
        return mask

    def release(self, mask: NodeMask) -> None:
        """Subtract one from the number of classes that use the mask. If no class uses the mask any more, remove the mask."""
        mask.users -= 1
        if mask.users:
            return
        del self.masks[mask.constraints]
        self._unanchored.pop(mask, None)
        for pair in mask.anchor or ():
            del self._anchored[pair][mask]
            if not self._anchored[pair]:
                del self._anchored[pair]
            self._labels.drop(pair[0])

    def node_changed(self, node: Node) -> None:
        """Evaluate a new node, or a node whose labels or taints changed, for every constraint that can allow it."""
        before = self._labels.labels_of(node)
        self._labels.put(node)
        self._reach(node.slot)
        for mask in self._unanchored:
            mask.judge(node)
        for mask in self._at(before):
            _forget(mask, node)
        for mask in self._at(node.labels):
            if mask.names is None:
                mask.judge(node)
            elif len(mask.names) < FEW_NODES:
                mask.names = (*mask.names, node.node_id)
            else:
                self._spread(mask, self._near(mask))

    def node_removed(self, node: Node) -> None:
        """Remove a deleted node from the masks and the label index, because its slot may be given to another node."""
        for mask in self._at(self._labels.labels_of(node)):
            _forget(mask, node)
        self._labels.remove(node)

    def _anchor(self, mask: NodeMask) -> None:
        """Find the anchor with the fewest nodes, and evaluate the constraint on these nodes."""
        best: tuple[int, Anchor] | None = None
        offered = _anchors(mask.constraints)
        used = [key for anchor in offered for key, _ in anchor]
        for key in used:
            self._labels.use(key)
        for anchor in offered:
            many = sum(len(self._labels.carrying(*pair)) for pair in anchor)
            if best is None or many < best[0]:
                best = many, anchor
        if best is None:
            self._unanchored[mask] = None
            self._spread(mask, self._labels.nodes)
            return
        mask.anchor = best[1]
        for pair in mask.anchor:
            self._labels.use(pair[0])
            self._anchored.setdefault(pair, {})[mask] = None
        for key in used:
            self._labels.drop(key)
        near = self._near(mask)
        if len(near) > FEW_NODES:
            self._spread(mask, near)
        else:
            mask.names = tuple(node.node_id for node in near)

    def _near(self, mask: NodeMask) -> NodeSet:
        """Return the nodes that have at least one pair (label and value) of the mask's anchor."""
        near: NodeSet = {}
        for pair in mask.anchor or ():
            near |= self._labels.carrying(*pair)
        return near

    def _at(self, labels: Mapping[str, str]) -> dict[NodeMask, None]:
        """Return the masks that are anchored at one of these labels, without repetitions."""
        found: dict[NodeMask, None] = {}
        for pair in labels.items():
            found |= self._anchored.get(pair, {})
        return found

    def _spread(self, mask: NodeMask, nodes: Iterable[Node]) -> None:
        """Change the mask to one byte for each node slot, and evaluate the constraint on these nodes.

        All other nodes count as not allowed.
        """
        mask.names = None
        mask.allowed = bytearray(self._slots)
        for node in nodes:
            mask.judge(node)

    def _reach(self, slot: int) -> None:
        """Extend all masks so that they cover a new slot. A mask doubles its length each time."""
        if slot < self._slots:
            return
        self._slots = 2 * slot + 64
        for mask in self.masks.values():
            if mask.names is None:
                mask.allowed.extend(bytes(self._slots - len(mask.allowed)))


def _forget(mask: NodeMask, node: Node) -> None:
    """Remove from the mask a node that no longer has a pair of the mask's anchor."""
    if mask.names is None:
        mask.allowed[node.slot] = 0
    else:
        mask.names = tuple(name for name in mask.names if name != node.node_id)
