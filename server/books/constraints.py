"""Which nodes a constraint allows: evaluated once per kind of node, kept as a mask (design 6.10).

A node's *kind* is the values of those labels that live constraints mention, and its taints. A constraint that
names its nodes outright keeps the names instead, so that ten thousand DaemonSet pods cost no masks.
"""

from collections.abc import Iterable, Mapping, Sequence

from server.books.nodes import Node, NodeEntry
from server.books.types import PORT_ROOM, ResourceTypes
from server.model.asks import Constraints, HostPort, Operator, Requirement, Taint, Term, Toleration
from server.model.fit import Demand
from server.model.resources import PORT_PREFIX

Kind = tuple[tuple[str | None, ...], tuple[Taint, ...]]
"""A node's values of the label keys that count, and its taints."""

_REPELLING = frozenset({"NoSchedule", "NoExecute"})
_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - an address in a pod's manifest, nothing listens


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Does this toleration cover this taint, as Kubernetes reads it?"""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def repels(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Is there a taint that keeps the pod away and that no toleration covers?"""
    return any(
        taint.effect in _REPELLING and not any(tolerates(one, taint) for one in tolerations)
        for taint in taints
    )


def _compares(requirement: Requirement, value: str | None) -> bool:
    """Gt and Lt compare whole numbers; anything else holds nowhere."""
    try:
        have, want = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return have > want if requirement.operator is Operator.GT else have < want


def holds(requirement: Requirement, value: str | None) -> bool:
    """Does one requirement hold for a label's value (None: the label is absent)?"""
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


def _term_holds(term: Term, labels: Mapping[str, str | None], node_id: str) -> bool:
    """An empty term matches nothing, as in Kubernetes."""
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
    """Do labels, taints and name of a node satisfy the constraint? Ports and room are not looked at."""
    if repels(taints, constraints.tolerations):
        return False
    if any(labels.get(key) != value for key, value in constraints.node_selector):
        return False
    terms = constraints.required_terms
    if terms and not any(_term_holds(term, labels, node_id) for term in terms):
        return False
    return names_allow(constraints, node_id)


def names_allow(constraints: Constraints, node_id: str) -> bool:
    """Do the parts of a constraint that name nodes allow this one?"""
    if node_id in constraints.excluded_nodes:
        return False
    if constraints.allowed_nodes and node_id not in constraints.allowed_nodes:
        return False
    return (not constraints.required_node or node_id == constraints.required_node) and (
        not constraints.node_name or node_id == constraints.node_name
    )


def named_nodes(constraints: Constraints) -> tuple[str, ...] | None:
    """The only nodes that a constraint can mean, when it names them outright; else None."""
    if constraints.required_node:
        return (constraints.required_node,)
    if constraints.node_name:
        return (constraints.node_name,)
    return constraints.allowed_nodes or _fields_name(constraints)


def _fields_name(constraints: Constraints) -> tuple[str, ...] | None:
    """The names in `metadata.name In [...]` when every term has such a field."""
    names: dict[str, None] = {}
    for term in constraints.required_terms:
        fields = [one for one in term.match_fields if one.operator is Operator.IN]
        if not fields:
            return None
        names.update(dict.fromkeys(fields[0].values))
    return tuple(names) or None


def _per_name(constraints: Constraints) -> bool:
    """Does the verdict depend on more than a node's kind?"""
    return bool(constraints.excluded_nodes) or any(
        term.match_fields for term in constraints.required_terms
    )


def mentioned(constraints: Constraints) -> list[str]:
    """The label keys that a constraint looks at."""
    keys = [key for key, _ in constraints.node_selector]
    keys += [one.key for term in constraints.required_terms for one in term.match_expressions]
    return keys


def port_demand(ports: Iterable[HostPort], types: ResourceTypes) -> Demand:
    """Host ports as synthetic resources: a wildcard takes a port's whole room, an address one unit (design 6.10)."""
    wanted: dict[int, int] = {}
    for port in sorted(set(ports), key=lambda one: (one.protocol, one.port, one.host_ip)):
        for name, units, room in port_units(port):
            index = types.intern(name, room)
            wanted[index] = min(wanted.get(index, 0) + units, room)
    return tuple(wanted.items())


def port_units(port: HostPort) -> tuple[tuple[str, int, int], ...]:
    """The synthetic resources that one host port takes: (name, how much, what a node has of it).

    That of the port itself, and that of its address when it names one.
    """
    name = f"{PORT_PREFIX}{port.protocol or 'TCP'}/{port.port}"
    if port.host_ip in _ANY_ADDRESS:
        return ((name, PORT_ROOM, PORT_ROOM),)
    return (name, 1, PORT_ROOM), (f"{name}/{port.host_ip}", 1, 1)


class NodeMask:
    """The verdict of one constraint on every node: a byte per node slot, or the named nodes alone.

    ``heap`` holds the nodes that it allows, once its classes missed too often on the shared one; `AskClass` says the rest.
    ``verdicts`` has them by kind, as far as a kind decides.
    """

    __slots__ = (
        "allowed",
        "constraints",
        "cursor",
        "heap",
        "log_epoch",
        "names",
        "per_name",
        "users",
        "verdicts",
    )

    def __init__(self, constraints: Constraints) -> None:
        self.constraints = constraints
        self.names = named_nodes(constraints)
        self.per_name = _per_name(constraints)
        self.verdicts: dict[Kind, bool] = {}
        self.allowed = bytearray()
        self.users = 0
        self.heap: list[NodeEntry] | None = None
        self.cursor = 0
        self.log_epoch = -1

    def allows(self, node: Node) -> bool:
        """May a node that is schedulable take an ask with this constraint, room aside?"""
        if self.names is None:
            return bool(self.allowed[node.slot])
        return node.node_id in self.names and matches(
            self.constraints, node.labels, node.taints, node.node_id
        )


class ConstraintIndex:
    """All live constraints with their masks, and the label keys that make up a node's kind."""

    __slots__ = ("_key_users", "_keys", "_nodes", "masks")

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._keys: tuple[str, ...] = ()
        self._key_users: dict[str, int] = {}
        self.masks: dict[Constraints, NodeMask] = {}

    def acquire(self, constraints: Constraints) -> NodeMask:
        """The mask of a constraint, evaluated for all nodes when it is new."""
        mask = self.masks.get(constraints)
        if mask is None:
            mask = self.masks[constraints] = NodeMask(constraints)
            self._mention(constraints, 1)
            for node in self._nodes.values():
                self._judge(mask, node)
        mask.users += 1
        return mask

    def release(self, mask: NodeMask) -> None:
        """One class less uses the mask; the last one takes it away."""
        mask.users -= 1
        if mask.users == 0:
            del self.masks[mask.constraints]
            self._mention(mask.constraints, -1)

    def node_changed(self, node: Node) -> None:
        """A node is new, or its labels or taints changed: judge it anew for every constraint."""
        for mask in self.masks.values():
            self._judge(mask, node)

    def _mention(self, constraints: Constraints, count: int) -> None:
        for key in mentioned(constraints):
            self._key_users[key] = self._key_users.get(key, 0) + count
            if self._key_users[key] == 0:
                del self._key_users[key]
        keys = tuple(sorted(self._key_users))
        if keys != self._keys:
            self._keys = keys
            for mask in self.masks.values():
                mask.verdicts.clear()

    def kind(self, node: Node) -> Kind:
        """What constraints can see of a node, apart from its name."""
        return tuple(map(node.labels.get, self._keys)), node.taints

    def _judge(self, mask: NodeMask, node: Node) -> None:
        if mask.names is not None:
            return
        allowed = mask.allowed
        if node.slot >= len(allowed):
            allowed.extend(bytes(node.slot + 1 - len(allowed)))
        allowed[node.slot] = self._verdict(mask, node)

    def _verdict(self, mask: NodeMask, node: Node) -> bool:
        if mask.per_name:
            return matches(mask.constraints, node.labels, node.taints, node.node_id)
        kind = self.kind(node)
        verdict = mask.verdicts.get(kind)
        if verdict is None:
            labels = dict(zip(self._keys, kind[0], strict=True))
            verdict = matches(mask.constraints, labels, node.taints, node.node_id)
            mask.verdicts[kind] = verdict
        return verdict
