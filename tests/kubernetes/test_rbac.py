"""The shim's service account has the rights that it needs, and no others (`kubectl auth can-i`).

The table below lists these rights; the test fails when deploy/rbac.yaml has more or fewer.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from lightkube import ApiError

from tests.kubernetes import objects
from tests.kubernetes.conftest import DEPLOY
from tests.kubernetes.kube import Kube, Object

SHIM = "system:serviceaccount:evenhand:evenhand-shim"
FORBIDDEN = 403
LOOK = ("get", "list", "watch")
LEASE = ("get", "create", "update")
VERBS = (*LOOK, "create", "update", "patch", "delete", "deletecollection")

EVERYWHERE: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "nodes"): LOOK,
    ("", "namespaces"): LOOK,
    ("", "pods"): (*LOOK, "create", "patch", "delete"),
    ("", "pods/binding"): ("create",),
    ("", "pods/eviction"): ("create",),
    ("", "pods/status"): ("patch",),
    ("", "events"): ("create", "patch"),
    ("", "persistentvolumes"): (*LOOK, "patch"),
    ("", "persistentvolumeclaims"): (*LOOK, "patch"),
    ("scheduling.k8s.io", "priorityclasses"): LOOK,
    ("scheduling.k8s.io", "podgroups"): LOOK,
    ("policy", "poddisruptionbudgets"): LOOK,
    ("storage.k8s.io", "storageclasses"): LOOK,
    ("storage.k8s.io", "csinodes"): LOOK,
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): LOOK,
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): LOOK,
    ("apps", "replicasets"): ("get",),
    ("apps", "statefulsets"): ("get",),
    ("batch", "jobs"): ("get",),
}
"""The rights of the account in every namespace: group, resource, verbs."""

NEVER = (
    ("", "pods/exec"),
    ("", "pods/ephemeralcontainers"),
    ("", "nodes/status"),
    ("", "nodes/proxy"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "serviceaccounts/token"),
    ("", "services"),
    ("", "configmaps"),
    ("apps", "deployments"),
    ("apps", "daemonsets"),
    ("batch", "jobs/status"),
    ("batch", "cronjobs"),
    ("coordination.k8s.io", "leases"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("certificates.k8s.io", "certificatesigningrequests"),
)
"""Resources, among many, that the account may not even read in a namespace that is not its own."""


def may(kube: Kube, verb: str, group: str, resource: str, namespace: str) -> bool:
    """Return whether the API server allows the request to the shim's account."""
    name, _, subresource = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": name, "namespace": namespace}
    [answer] = kube.create(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {"name": ""},
            "spec": {
                "user": SHIM,
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "resourceAttributes": asked | ({"subresource": subresource} if subresource else {}),
            },
        }
    )
    return bool(answer["status"]["allowed"])


def allowed(kube: Kube, group: str, resource: str, namespace: str) -> tuple[str, ...]:
    return tuple(verb for verb in VERBS if may(kube, verb, group, resource, namespace))


@pytest.mark.parametrize(("group", "resource"), EVERYWHERE)
def test_the_shim_may_do_this_everywhere(kube: Kube, group: str, resource: str) -> None:
    expected = [verb for verb in VERBS if verb in EVERYWHERE[group, resource]]
    assert list(allowed(kube, group, resource, "default")) == expected
    assert list(allowed(kube, group, resource, "evenhand")) == expected


@pytest.mark.parametrize(("group", "resource"), NEVER)
def test_the_shim_may_not_even_look_at(kube: Kube, group: str, resource: str) -> None:
    assert allowed(kube, group, resource, "default") == ()


def test_config_maps_only_of_its_own_namespace_and_only_to_read(kube: Kube) -> None:
    assert allowed(kube, "", "configmaps", "evenhand") == LOOK
    assert allowed(kube, "", "configmaps", "kube-system") == ()


def test_leases_only_of_its_own_namespace(kube: Kube) -> None:
    assert allowed(kube, "coordination.k8s.io", "leases", "evenhand") == LEASE


def test_secrets_not_even_in_its_own_namespace(kube: Kube) -> None:
    assert allowed(kube, "", "secrets", "evenhand") == ()


def test_no_rule_of_its_roles_stands_outside_the_table(kube: Kube) -> None:
    """What the table does not ask for cannot be in the role: no star, no other resource."""
    own = {("", "configmaps"): set(LOOK), ("coordination.k8s.io", "leases"): set(LEASE)}
    own |= {key: set(verbs) for key, verbs in EVERYWHERE.items()}
    given: dict[tuple[str, str], set[str]] = {}
    for rule in _rules():
        assert set(rule) == {"apiGroups", "resources", "verbs"}, "no rule by name or by URL"
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                given.setdefault((group, resource), set()).update(rule["verbs"])
    assert given == own
    bound = [
        item["metadata"]["name"] for item in kube.all("ClusterRoleBinding", "") if _binds(item)
    ]
    assert bound == ["evenhand-shim"], "no other role is bound to it"


def _rules() -> Iterator[Object]:
    for item in yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text()):
        yield from item.get("rules", [])


def _binds(binding: Object) -> bool:
    subjects = binding.get("subjects", [])
    return any(subject["name"] == "evenhand-shim" for subject in subjects)


def test_the_account_that_the_tests_use_is_this_one(shim_kubeconfig: Path) -> None:
    """Not only said: what the tests' shims come with is let in, and really refused the rest."""
    with closing(Kube(shim_kubeconfig)) as shim:
        shim.all("Pod")
        for kind in ("Secret", "ConfigMap"):
            with pytest.raises(ApiError, match="forbidden") as refused:
                shim.all(kind)
            assert refused.value.status.code == FORBIDDEN
        with pytest.raises(ApiError, match="forbidden"):
            shim.create(objects.config_map("default", {}, "smuggled"))
