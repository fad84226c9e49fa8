"""The users of pods: whether the annotation `user.info` of a pod counts, and which user the core gets if it does not.

With the setting `service.trustUserInfo: enforced` an annotation counts only where the admission policy `evenhand-user`
guards it: in the namespaces of its binding, on pods that are newer than both. The core gets the identity of the
namespace for every other pod, because the API server itself sets the namespace. A service account would be no better:
everybody who may create pods in a namespace may choose any service account of that namespace.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from shim_client.state_machine.state import PodRecord, State
from shim_client.translate.applications import DEFAULT_USER, Membership
from shim_client.translate.matching import selects
from shim_client.translate.policies import GUARD

SETTLE_MS = 5_000
"""Milliseconds after its creation within which a policy may not be in force yet at every API server."""
DIGEST_LETTERS = 16
NAMESPACE_USER = "system:namespace:{}"
"""The user of a pod whose annotation does not count. Kubernetes keeps the prefix `system:` for itself."""
_ABSENT = f"there is no ValidatingAdmissionPolicy {GUARD}"
_UNBOUND = f"no ValidatingAdmissionPolicyBinding puts {GUARD} in force"
_UNREADABLE = "the shim may not read admission policies: apply deploy/rbac.yaml again"


def membership(state: State, pod: PodRecord) -> Membership:
    """Return application, queue and user of a pod as the core gets them.

    An application is of one user: where annotations are not simply trusted, its id ends with a digest of the user's
    name. Otherwise a user's pods could name, and count in, an application of another user.
    """
    written = pod.facts.membership
    if state.settings.trust_user_info:
        return written
    user, groups = written.user, written.groups
    flaw = _flaw_of(state, pod)
    if flaw or user == DEFAULT_USER:
        user, groups = NAMESPACE_USER.format(pod.facts.ref.namespace), ()
        if written.user not in (DEFAULT_USER, user):
            why = f"user {written.user[:80]!r} of its annotation does not count: {flaw}; its user is {user}"
            state.note_once(pod, "UserInfoNotTrusted", why, warning=True)
    digest = sha256(user.encode()).hexdigest()[:DIGEST_LETTERS]
    application = f"{written.application.removesuffix(f'-{digest}')}-{digest}"
    return replace(written, application=application, user=user, groups=groups)


def flaw(state: State) -> str:
    """Return why no annotation counts; "" if annotations count in some namespaces."""
    guard = state.guard
    if not all(guard.served.values()):
        return _UNREADABLE
    if guard.policy is None:
        return _ABSENT
    if guard.policy.flaw:
        return guard.policy.flaw
    flaws = [one.flaw for one in guard.bindings.values()]
    return "" if "" in flaws else min(flaws, default=_UNBOUND)


def _flaw_of(state: State, pod: PodRecord) -> str:
    """Return why the annotation of a pod does not count; "" if it does."""
    if found := flaw(state):
        return found
    guard, namespace = state.guard, state.namespaces.get(pod.facts.ref.namespace)
    sound = [one for one in guard.bindings.values() if not one.flaw]
    chosen = [one for one in sound if namespace and selects(one.namespaces, namespace.labels)]
    if not chosen:
        return f"no binding of {GUARD} selects its namespace"
    policy_ms = guard.policy.created_ms if guard.policy else 0
    since_ms = max(policy_ms, min(one.created_ms for one in chosen)) + SETTLE_MS
    return "" if pod.facts.created_ms > since_ms else f"the pod is older than {GUARD}"
