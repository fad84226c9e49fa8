"""The admission policies of deploy/admission on the API server of the tests, and requests as users and service accounts.

The API server itself evaluates the CEL of the policies. A request with `dry` is admitted or refused like any other, and
changes nothing.
"""

import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import yaml

from scripts.real import provision
from tests.kubernetes.conftest import DEPLOY
from tests.kubernetes.kube import Kube, Object, until

USER = "yunikorn.apache.org/user.info"
LABEL = "evenhand.test/admission"
"""The label of the namespaces in which the policies of the tests are in force, so that other tests do not notice them."""
SHIM = "system:serviceaccount:evenhand:evenhand-shim"
SEEN = frozenset({200, 201})
FORBIDDEN, ABSENT = 403, 404
OLDER = {"1.32": "v1alpha1", "1.33": "v1alpha1", "1.34": "v1beta1", "1.35": "v1beta1"}
PLACES = {
    "Pod": ("api/v1", "pods"),
    "Binding": ("api/v1", "bindings"),
    "ReplicationController": ("api/v1", "replicationcontrollers"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "ReplicaSet": ("apis/apps/v1", "replicasets"),
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
    "DaemonSet": ("apis/apps/v1", "daemonsets"),
    "ControllerRevision": ("apis/apps/v1", "controllerrevisions"),
    "Job": ("apis/batch/v1", "jobs"),
    "CronJob": ("apis/batch/v1", "cronjobs"),
}
WORKLOADS = tuple(kind for kind in PLACES if kind not in {"Pod", "Binding", "ControllerRevision"})
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
PATCH = "application/json-patch+json"
DRY = "?dryRun=All"


@dataclass(frozen=True)
class Person:
    """A user or service account, with its groups."""

    name: str
    groups: tuple[str, ...] = ("developers",)

    def info(self) -> str:
        """Return the annotation that the policies write for this user."""
        return _compact({"user": self.name, "groups": [*self.groups, "system:authenticated"]})


def account(name: str, namespace: str = "kube-system") -> Person:
    """Return a service account with the groups that the API server gives it."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return Person(f"system:serviceaccount:{namespace}:{name}", groups)


ALICE, BOB = Person("alice"), Person("bob", ("developers", "night"))
ADMIN = Person("root", ("system:masters",))


class Requests:
    """Requests to the API server in the name of users, by impersonation."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        config = yaml.safe_load(kube.kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._http = httpx2.Client(
            base_url=cluster["server"],
            verify=ssl.create_default_context(cafile=cluster["certificate-authority"]),
            headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
            trust_env=False,
            timeout=60,
        )
        self.namespace = namespace

    def close(self) -> None:
        self._http.close()

    def send(
        self, who: Person, method: str, place: str, body: Any, kind: str = "application/json"
    ) -> httpx2.Response:
        """Send one request about an object of the namespace.

        `place` is a path such as `api/v1/pods/a/status`, with a query or without.
        """
        root, version, rest = _split(place)
        words = [("Impersonate-User", who.name), ("Content-Type", kind)]
        words += [("Impersonate-Group", group) for group in who.groups]
        headers = [(key.encode(), word.encode()) for key, word in words]
        path = f"/{root}/{version}/namespaces/{self.namespace}/{rest}"
        return self._http.request(method, path, content=_compact(body), headers=headers)

    def create(self, who: Person, item: Object, *, dry: bool = True) -> httpx2.Response:
        """Create an object, without an effect unless `dry` is False."""
        root, plural = PLACES[item["kind"]]
        return self.send(who, "POST", f"{root}/{plural}{DRY if dry else ''}", item)

    def patch(
        self, who: Person, item: Object, change: Any, kind: str = MERGE, sub: str = ""
    ) -> httpx2.Response:
        """Patch an object, or its subresource `sub`, without an effect."""
        place = _place(item) + (f"/{sub}" if sub else "")
        return self.send(who, "PATCH", place + DRY, change, kind)

    def replace(self, who: Person, item: Object) -> httpx2.Response:
        """Replace an object, without an effect."""
        return self.send(who, "PUT", _place(item) + DRY, item)


def _split(place: str) -> tuple[str, str, str]:
    parts = place.split("/")
    size = 2 if parts[0] == "api" else 3
    return "/".join(parts[: size - 1]), parts[size - 1], "/".join(parts[size:])


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _place(item: Object) -> str:
    root, plural = PLACES[item["kind"]]
    return f"{root}/{plural}/{item['metadata']['name']}"


def made(answer: httpx2.Response) -> Object:
    """Return the object of an answer, after a check that the request was admitted."""
    assert answer.status_code in SEEN, answer.text
    found: Object = answer.json()
    return found


def refused(answer: httpx2.Response) -> str:
    """Return the message of a refusal by a policy of Evenhand."""
    assert answer.status_code == FORBIDDEN, answer.text
    message: str = answer.json()["message"]
    assert "ValidatingAdmissionPolicy 'evenhand-" in message, message
    return message


def template(item: Object) -> Object:
    """Return the pod template of a workload, or the pod itself."""
    if item["kind"] == "Pod":
        return item
    spec = item["spec"]
    found: Object = (spec["jobTemplate"]["spec"] if item["kind"] == "CronJob" else spec)["template"]
    return found


def user_of(item: Object) -> str:
    """Return the annotation of a pod or pod template; empty if there is none."""
    notes = template(item).get("metadata", {}).get("annotations", {})
    return str(notes.get(USER, ""))


def pod(name: str, *, owner: Object | None = None, **metadata: Any) -> Object:
    """Return a pod; `owner` is the workload that controls it."""
    if owner is not None:
        metadata["ownerReferences"] = [controlled_by(owner)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


def controlled_by(owner: Object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"].get("uid", "00000000-0000-0000-0000-000000000001"),
        "controller": True,
    }


def workload(kind: str, name: str, notes: Mapping[str, str] | None = None) -> Object:
    """Return a workload of a kind, whose pod template has these annotations."""
    metadata: Object = {"labels": {"app": name}} | ({"annotations": dict(notes)} if notes else {})
    spec: Object = {"containers": [{"name": "main", "image": "none"}]}
    full: Object = {"template": {"metadata": metadata, "spec": spec}}
    match kind:
        case "Job" | "CronJob":
            spec["restartPolicy"] = "Never"
            if notes is None:
                del full["template"]["metadata"]
        case "ReplicationController":
            full["selector"] = {"app": name}
        case _:
            full["selector"] = {"matchLabels": {"app": name}}
    if kind == "StatefulSet":
        full["serviceName"] = name
    if kind == "CronJob":
        full = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": full}}
    version = PLACES[kind][0].removeprefix("apis/").removeprefix("api/")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": full}


def rendered(kube: Kube, folder: str = "") -> list[Object]:
    """Return the objects of deploy/admission for the version of the API server."""
    version = OLDER.get(provision.kubernetes(), "")
    said = kube.kubectl("kustomize", str(DEPLOY / "admission" / (folder or version)))
    assert said.returncode == 0, said.stderr
    return list(yaml.safe_load_all(said.stdout))


def only_labelled(items: Sequence[Object]) -> Iterator[Object]:
    """Yield the objects, with bindings that apply only to namespaces with the label of the tests.

    The defaults apply only where the value of the label is `true`.
    """
    for item in items:
        if item["kind"].endswith("Binding"):
            found = item["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
            values = ["true"] if item["kind"].startswith("Mutating") else ["true", "guards"]
            found.append({"key": LABEL, "operator": "In", "values": values})
        yield item


@contextmanager
def applied(kube: Kube, items: Sequence[Object]) -> Iterator[None]:
    """Apply objects while the block runs."""
    text = yaml.safe_dump_all(items)
    said = kube.kubectl("apply", "--server-side", "-f", "-", given=text)
    assert said.returncode == 0, said.stderr
    try:
        yield
    finally:
        kube.kubectl("delete", "--ignore-not-found", "-f", "-", given=text)


def wait_until_in_force(requests: Requests, *, defaults: bool) -> None:
    """Wait until the API server enforces every policy that needs no other object."""
    soft = pod("probe", annotations={"evenhand.io/delivery": "soft"})
    firm = pod("probe", labels={"quota.scheduling.koordinator.sh/preemptible": "false"})
    firm["spec"]["schedulerName"] = "evenhand"
    bad = (soft, firm, revision("probe"), binding("probe", annotations={USER: "x"}))
    until(lambda: all(requests.create(ADMIN, one).status_code == FORBIDDEN for one in bad))

    def is_in_force() -> bool:
        answer = requests.create(BOB, pod("probe"))
        return answer.status_code in SEEN and bool(user_of(answer.json())) == defaults

    until(is_in_force)


def binding(name: str, **metadata: Any) -> Object:
    """Return the binding of a pod to a node."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "none"},
    }


def revision(name: str, owner: Object | None = None) -> Object:
    """Return a ControllerRevision, controlled by `owner` if there is one."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": name} | ({"ownerReferences": [controlled_by(owner)]} if owner else {}),
        "data": {"spec": {}},
        "revision": 1,
    }
