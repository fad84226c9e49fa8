"""The check whether a node's labels meet a selector term, and whether a pod's labels match a label selector."""

from __future__ import annotations

from collections.abc import Mapping

from shim_client.messages import Requirement, SelectorTerm
from shim_client.translate.fields import BadObjectError, Fields, items, names, text, texts

Labels = Mapping[str, str]
Selector = tuple[Requirement, ...]
"""Requirements that must all be met; an empty selector matches everything."""

_OF_LABELS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


def read_selector(fields: Fields, where: str) -> Selector:
    """Return a label selector (matchLabels and matchExpressions). Raises BadObjectError if a field is invalid."""
    wanted = texts(fields, "matchLabels", where)
    plain = [Requirement(key, "In", (wanted[key],)) for key in sorted(wanted)]
    listed = items(fields, "matchExpressions", where)
    return (*plain, *(_expression(item, f"{where}matchExpressions[].") for item in listed))


def _expression(item: Fields, where: str) -> Requirement:
    operator = text(item, "operator", where)
    if operator not in _OF_LABELS:
        raise BadObjectError(f"{where}operator", f"{operator[:40]!r} is not known")
    return Requirement(text(item, "key", where), operator, names(item, "values", where))


def selects(selector: Selector, labels: Labels) -> bool:
    """Return whether labels meet every requirement."""
    return all(holds(requirement, labels) for requirement in selector)


def term_holds(term: SelectorTerm, name: str, labels: Labels) -> bool:
    """Return whether a node meets a term.

    A term without requirements matches no node.
    """
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": name}
    return selects(term.match_expressions, labels) and selects(term.match_fields, fields)


def holds(item: Requirement, labels: Labels) -> bool:
    """Return whether labels meet one requirement."""
    value = labels.get(item.key)
    match item.operator:
        case "In":
            return value in item.values
        case "NotIn":
            return value not in item.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return _compares(item, value)


def _compares(item: Requirement, value: str | None) -> bool:
    """Return whether Gt or Lt holds between whole numbers."""
    try:
        have, want = int(value or ""), int(item.values[0])
    except (ValueError, IndexError):
        return False
    return have > want if item.operator == "Gt" else have < want
