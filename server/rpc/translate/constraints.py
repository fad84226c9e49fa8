"""The translation of an ask's node constraints from the wire to values.

The form of each field is checked as in Kubernetes (design 1.8).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from server.model.asks import (
    UNCONSTRAINED,
    Constraints,
    HostPort,
    Operator,
    Requirement,
    Taint,
    Term,
    Toleration,
)
from server.rpc.translate.fields import RefusedError, bounded, listed, name, one_of
from si.v1 import si_pb2

_OPERATORS: Final = {operator.value: operator for operator in Operator}
_EFFECTS: Final = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATES: Final = ("", "Equal", "Exists", "Gt", "Lt")
_PROTOCOLS: Final = ("", "TCP", "UDP", "SCTP")
_PORT_MAX: Final = 65_535
_COMPARE: Final = frozenset({Operator.GT, Operator.LT})
_PRESENCE: Final = frozenset({Operator.EXISTS, Operator.DOES_NOT_EXIST})


def constraints(message: si_pb2.NodeConstraints) -> Constraints:
    """Return the constraints of an ask. Return the object `UNCONSTRAINED` if the message sets no constraints."""
    if not message.ByteSize():
        return UNCONSTRAINED
    for field in ("requiredTerms", "tolerations", "hostPorts", "allowedNodes", "excludedNodes"):
        listed(f"constraints.{field}", getattr(message, field))
    found = Constraints(
        node_selector=tuple(sorted(message.nodeSelector.items())),
        required_terms=tuple(
            term(f"constraints.requiredTerms[{i}]", one)
            for i, one in enumerate(message.requiredTerms)
        ),
        tolerations=tuple(_toleration(i, one) for i, one in enumerate(message.tolerations)),
        node_name=bounded("constraints.nodeName", message.nodeName),
        host_ports=tuple(_host_port(i, one) for i, one in enumerate(message.hostPorts)),
        allowed_nodes=_names("constraints.allowedNodes", message.allowedNodes),
        excluded_nodes=_names("constraints.excludedNodes", message.excludedNodes),
    )
    return UNCONSTRAINED if found == UNCONSTRAINED else found


def taints(messages: Sequence[si_pb2.Taint]) -> tuple[Taint, ...]:
    """Return the taints of a node, sorted, so that the client's order does not matter."""
    listed("taints", messages)
    return tuple(sorted(_taint(i, one) for i, one in enumerate(messages)))


def _taint(index: int, message: si_pb2.Taint) -> Taint:
    path = f"taints[{index}]"
    effect = one_of(f"{path}.effect", message.effect, _EFFECTS[1:])
    return Taint(key=name(f"{path}.key", message.key), value=message.value, effect=effect)


def _names(field: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name(field, one) for one in names}))


def term(path: str, message: si_pb2.NodeSelectorTerm) -> Term:
    """Return a term of node requirements. A refusal names ``path``, which is the path of the term in the message."""
    listed(path, message.matchExpressions)
    listed(path, message.matchFields)
    return Term(
        match_expressions=tuple(
            _requirement(f"{path}.matchExpressions[{i}]", one)
            for i, one in enumerate(message.matchExpressions)
        ),
        match_fields=tuple(
            _field(f"{path}.matchFields[{i}]", one) for i, one in enumerate(message.matchFields)
        ),
    )


def _requirement(path: str, message: si_pb2.NodeSelectorRequirement) -> Requirement:
    name(f"{path}.key", message.key)
    operator = _OPERATORS[one_of(f"{path}.operator", message.operator, _OPERATORS)]
    listed(f"{path}.values", message.values)
    values = tuple(message.values)
    _check_values(f"{path}.values", operator, values)
    return Requirement(key=message.key, operator=operator, values=values)


def _check_values(path: str, operator: Operator, values: tuple[str, ...]) -> None:
    """Check the number of values of an operator as the Kubernetes API does.

    Raise RefusedError if the operator does not take these values.
    """
    if operator in _PRESENCE and values:
        raise RefusedError(f"{path}: {operator} takes no values")
    if operator in _COMPARE and (len(values) != 1 or not _is_whole(values[0])):
        raise RefusedError(f"{path}: {operator} takes one whole number")
    if operator not in _PRESENCE and not values:
        raise RefusedError(f"{path}: {operator} needs at least one value")


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit()


def _field(path: str, message: si_pb2.NodeSelectorRequirement) -> Requirement:
    found = _requirement(path, message)
    one_of(f"{path}.key", found.key, ("metadata.name",))
    one_of(f"{path}.operator", found.operator, (Operator.IN, Operator.NOT_IN))
    return found


def _toleration(index: int, message: si_pb2.Toleration) -> Toleration:
    path = f"constraints.tolerations[{index}]"
    operator = one_of(f"{path}.operator", message.operator, _TOLERATES) or "Equal"
    if not message.key and operator == "Equal":
        raise RefusedError(f"{path}.key: is empty, which only Exists may be")
    effect = one_of(f"{path}.effect", message.effect, _EFFECTS)
    return Toleration(key=message.key, operator=operator, value=message.value, effect=effect)


def _host_port(index: int, message: si_pb2.HostPort) -> HostPort:
    path = f"constraints.hostPorts[{index}]"
    protocol = one_of(f"{path}.protocol", message.protocol, _PROTOCOLS) or "TCP"
    if not 0 < message.port <= _PORT_MAX:
        raise RefusedError(f"{path}.port: {message.port} is not between 1 and {_PORT_MAX}")
    return HostPort(port=message.port, protocol=protocol, host_ip=message.hostIP)
