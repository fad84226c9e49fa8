"""The formulas of the design, implemented a second time from its text, for the oracle alone.

No code is shared with the scheduler, so that a mistake in `server.model.fit` or in the state's constraints is not
repeated here. Amounts are plain dictionaries from resource type to whole units; a missing type is zero.
"""

from collections.abc import Callable, Iterable, Mapping

from server.model.asks import Constraints, HostPort, Operator, Requirement, Taint, Term, Toleration

Amounts = Mapping[str, int]

INFINITE_SHARE = 1 << 62
"""The share of a queue that uses a type whose measure is zero."""
LEAST_PRIORITY = -(2**31)
GREATEST_PRIORITY = 2**31 - 1
KEEPING_AWAY = ("NoSchedule", "NoExecute")
EVERY_ADDRESS = ("", "0.0.0.0")  # noqa: S104 - compared, never bound


def seen_from_above(priority: int, offset: int, *, fenced: bool) -> int:
    """Return a priority as the parent of a queue sees it (design 6.3)."""
    if fenced:
        return offset
    return max(LEAST_PRIORITY, min(GREATEST_PRIORITY, priority + offset))


def dominant_share(usage: Amounts, measure: Callable[[str], int | None]) -> int:
    """Return the greatest usage / measure over used types, in units of 2^-32; a type without measure is left out."""
    shares = [0]
    for kind, used in usage.items():
        whole = measure(kind)
        if used <= 0 or whole is None:
            continue
        shares.append(used * 2**32 // whole if whole > 0 else INFINITE_SHARE)
    return max(shares)


def fullness(capacity: Amounts, free: Amounts, weights: Iterable[tuple[str, int]]) -> int:
    """Return how full a node is: the weighted sum of the used parts of its capacity, in units of 2^-20."""
    return sum(
        weight * ((capacity[kind] - free.get(kind, 0)) * 2**20 // capacity[kind])
        for kind, weight in weights
        if capacity.get(kind, 0) > 0
    )


def missing_part(request: Amounts, capacity: Amounts, free: Amounts) -> int:
    """Return how much a node lacks for a request: missing / capacity summed over types, in units of 2^-20."""
    return sum(
        max(0, wanted - max(free.get(kind, 0), 0)) * 2**20 // capacity[kind]
        for kind, wanted in request.items()
    )


def has_capacity(request: Amounts, free: Amounts) -> bool:
    """Return whether enough of every requested type is free; amounts of other types may be negative."""
    return all(free.get(kind, 0) >= wanted for kind, wanted in request.items())


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration matches a taint, as in Kubernetes: an empty effect or key matches all, Exists matches any value."""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def _as_number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether labels meet one requirement of a node selector."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case Operator.IN:
            return value in requirement.values
        case Operator.NOT_IN:
            return value not in requirement.values
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
    left = None if value is None else _as_number(value)
    right = _as_number(requirement.values[0])
    if left is None or right is None:
        return False
    return left > right if requirement.operator is Operator.GT else left < right


def term_holds(term: Term, node_id: str, labels: Mapping[str, str]) -> bool:
    """Return whether a node meets all requirements of a term; as in Kubernetes, no node meets a term without requirements."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node_id}
    return all(holds(each, labels) for each in term.match_expressions) and all(
        holds(each, fields) for each in term.match_fields
    )


def permits(
    constraints: Constraints, node_id: str, labels: Mapping[str, str], taints: Iterable[Taint]
) -> bool:
    """Return whether a node with this name, these labels and these taints may take an ask with these constraints."""
    named = [name for name in (constraints.node_name, constraints.required_node) if name]
    if any(name != node_id for name in named) or node_id in constraints.excluded_nodes:
        return False
    if constraints.allowed_nodes and node_id not in constraints.allowed_nodes:
        return False
    if any(labels.get(key) != value for key, value in constraints.node_selector):
        return False
    terms = constraints.required_terms
    if terms and not any(term_holds(term, node_id, labels) for term in terms):
        return False
    return all(
        any(tolerates(toleration, taint) for toleration in constraints.tolerations)
        for taint in taints
        if taint.effect in KEEPING_AWAY
    )


def clash(one: HostPort, other: HostPort) -> bool:
    """Return whether two host ports exclude each other on a node."""
    if (one.port, one.protocol) != (other.port, other.protocol):
        return False
    return (
        one.host_ip in EVERY_ADDRESS
        or other.host_ip in EVERY_ADDRESS
        or one.host_ip == other.host_ip
    )
