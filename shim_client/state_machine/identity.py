"""The users of pods: whether the shim accepts the annotation `user.info` of a pod, and which user it reports otherwise.

With the setting `service.trustUserInfo: enforced`, the shim accepts the annotation of a pod only if the admission
policy `evenhand-user` guards the annotation. A policy guards the annotations of pods in the namespaces of its binding,
if these pods were created after policy and binding. For every other pod the shim reports the namespace as the user,
because the API server itself sets the namespace. A service account would not be safer: a user who may create pods in a
namespace may choose any service account of that namespace.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from shim_client.state_machine.state import PodRecord, State
from shim_client.translate.applications import DEFAULT_USER, Membership
from shim_client.translate.matching import selects
from shim_client.translate.policies import GUARD

SETTLE_MS = 5_000
"""Milliseconds after the creation of a policy during which some API servers possibly do not enforce the policy yet."""
DIGEST_LETTERS = 16
NAMESPACE_USER = "system:namespace:{}"
"""The user of a pod whose annotation the shim does not accept. Kubernetes reserves the prefix `system:` for itself."""
_ABSENT = f"there is no ValidatingAdmissionPolicy {GUARD}"
_UNBOUND = f"no ValidatingAdmissionPolicyBinding puts {GUARD} in force"
_UNREADABLE = "the shim may not read admission policies: apply deploy/rbac.yaml again"


def membership(state: State, pod: PodRecord) -> Membership:
    """Return application, queue and user of a pod as they are reported to the core.

    Unless the settings trust every annotation, the id of an application ends with a digest of the user's name, so
    that each application has one user. Without the digest, pods of a user could join an application of another user.
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
    """Return why the shim accepts no annotation; "" if it accepts annotations in some namespaces."""
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
    """Return why the shim does not accept the annotation of a pod; "" if it accepts the annotation."""
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
