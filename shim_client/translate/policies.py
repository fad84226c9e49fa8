"""The admission policy that protects the annotations with the users of pods, and its binding (`deploy/admission/guards/user.yaml`)."""

from __future__ import annotations

from dataclasses import dataclass

from shim_client.translate.fields import Fields, instant_ms, items, mapping, names, text
from shim_client.translate.matching import Selector, read_selector

GUARD = "evenhand-user"
"""Name of the ValidatingAdmissionPolicy; its bindings may have any name."""


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """The facts of the admission policy itself."""

    created_ms: int
    flaw: str
    """Why the policy does not guard anything; "" if it does."""


@dataclass(frozen=True, slots=True)
class BindingFacts:
    """A binding of the admission policy: since when, and in which namespaces, requests are refused."""

    created_ms: int
    flaw: str
    """Why the binding does not put the policy in force; "" if it does."""
    namespaces: Selector
    """The labels of the namespaces in which the policy is in force."""


def policy_name(binding: Fields) -> str:
    """Return the name of the policy that a binding puts in force. Raises BadObjectError if the field is not a text."""
    return text(mapping(binding, "spec"), "policyName", "spec.")


def read_policy(item: Fields) -> PolicyFacts:
    """Return the facts of the admission policy. Raises BadObjectError if a field is invalid."""
    spec = mapping(item, "spec")
    flaw = ""
    if text(spec, "failurePolicy", "spec.") not in ("", "Fail"):
        flaw = f"the failurePolicy of {GUARD} is not Fail"
    elif items(spec, "matchConditions", "spec.") or not items(spec, "validations", "spec."):
        flaw = f"{GUARD} has matchConditions, or no validations"
    return PolicyFacts(_created_ms(item), flaw)


def read_binding(item: Fields) -> BindingFacts:
    """Return the facts of a binding of the admission policy. Raises BadObjectError if a field is invalid."""
    spec = mapping(item, "spec")
    where = "spec.matchResources."
    matched = mapping(spec, "matchResources", "spec.")
    chosen = mapping(matched, "namespaceSelector", where)
    flaw = ""
    if "Deny" not in names(spec, "validationActions", "spec."):
        flaw = f"the validationActions of the binding of {GUARD} do not have Deny"
    elif any(
        matched.get(key) for key in ("objectSelector", "resourceRules", "excludeResourceRules")
    ):
        flaw = f"the binding of {GUARD} leaves out some objects"
    selector = read_selector(chosen, where + "namespaceSelector.")
    return BindingFacts(_created_ms(item), flaw, selector)


def _created_ms(item: Fields) -> int:
    return instant_ms(mapping(item, "metadata"), "creationTimestamp", "metadata.")
