"""A PodDisruptionBudget: the pods that it counts, and the number of these pods that may be evicted now."""

from __future__ import annotations

from dataclasses import dataclass

from shim_client.translate.fields import Fields, mapping, whole
from shim_client.translate.matching import Selector, read_selector

_COUNTS = (-(2**31), 2**31 - 1)
_GENERATIONS = (0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class BudgetFacts:
    """The facts of one budget that the state machine keeps."""

    selector: Selector
    allowed: int


def read_budget(item: Fields) -> BudgetFacts | None:
    """Return a budget's facts.

    Return None when the budget has no selector and so counts no pod. While the status describes an older version of
    the spec, the number of allowed disruptions is 0, as in the eviction API.
    """
    spec, status = mapping(item, "spec"), mapping(item, "status")
    if spec.get("selector") is None:
        return None
    selector = read_selector(mapping(spec, "selector", "spec."), "spec.selector.")
    generation = whole(mapping(item, "metadata"), "generation", _GENERATIONS, "metadata.")
    seen = whole(status, "observedGeneration", _GENERATIONS, "status.")
    allowed = whole(status, "disruptionsAllowed", _COUNTS, "status.")
    return BudgetFacts(selector, 0 if seen < generation else max(0, allowed))
