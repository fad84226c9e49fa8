"""The admission policy that protects the annotations with the users of pods, and the bindings of this policy.

The shim records policy and bindings. An event reports when the shim begins or ceases to accept the annotations with
users.
"""

from __future__ import annotations

from shim_client.cluster import KINDS, KubeObject, Listing
from shim_client.state_machine import identity
from shim_client.state_machine.objects import configuration
from shim_client.state_machine.state import State
from shim_client.translate.fields import mapping, text
from shim_client.translate.policies import GUARD, policy_name, read_binding, read_policy

POLICIES = frozenset({"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"})


def observe_policy(state: State, item: KubeObject) -> None:
    """Record the admission policy when it is new or has changed. An unreadable policy counts as absent."""
    if _name(item) == GUARD:
        state.guard.policy = None
        try:
            state.guard.policy = read_policy(item)
        finally:
            tell(state)


def forget_policy(state: State, item: KubeObject) -> None:
    """Record that the admission policy was deleted."""
    if _name(item) == GUARD:
        state.guard.policy = None
        tell(state)


def observe_binding(state: State, item: KubeObject) -> None:
    """Record a binding of the admission policy when it is new or has changed. An unreadable binding counts as absent."""
    name = _name(item)
    state.guard.bindings.pop(name, None)
    try:
        if policy_name(item) == GUARD:
            state.guard.bindings[name] = read_binding(item)
    finally:
        tell(state)


def forget_binding(state: State, item: KubeObject) -> None:
    """Record that a binding was deleted."""
    if state.guard.bindings.pop(_name(item), None) is not None:
        tell(state)


def refresh(state: State, listing: Listing) -> None:
    """Record that one more kind was listed, and whether the cluster serves admission policies to the shim."""
    if listing.kind in POLICIES:
        state.guard.served[listing.kind] = listing.served
    tell(state)


def tell(state: State) -> None:
    """Record an event on the shim's ConfigMap when the shim begins or ceases to accept annotations that name users."""
    if state.settings.trust_user_info or not state.listed.issuperset(KINDS):
        return
    flaw = identity.flaw(state)
    if state.guard.said == flaw:
        return
    state.guard.said = flaw
    reason = "UserInfoNotTrusted" if flaw else "UserInfoTrusted"
    about = configuration.reference(state)
    state.note(about, reason, _said(flaw), warning=bool(flaw))


def _said(flaw: str) -> str:
    """Return the text of an event that says whether the shim accepts annotations that name users. `flaw` is why it does not."""
    if flaw:
        return (
            f"{flaw}; new applications have the user {identity.NAMESPACE_USER.format('NAMESPACE')}"
        )
    return f"{GUARD} is in force: the user.info of new pods counts in the namespaces of its binding"


def _name(item: KubeObject) -> str:
    return text(mapping(item, "metadata"), "name", "metadata.")
