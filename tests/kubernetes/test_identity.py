"""The admission policies of deploy/admission on a real API server: users, service accounts and controllers.

There is no controller manager, so the tests act as its service accounts, with the rights that the API server gives
these.
"""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from shim_client.translate import labels
from shim_client.translate.applications import Marked, membership
from tests.kubernetes import admission, objects
from tests.kubernetes.admission import (
    ADMIN,
    ALICE,
    APPLY,
    BOB,
    DRY,
    LABEL,
    PATCH,
    USER,
    WORKLOADS,
    Person,
    Requests,
    account,
    applied,
    binding,
    controlled_by,
    made,
    only_labelled,
    pod,
    refused,
    rendered,
    revision,
    template,
    user_of,
    wait_until_in_force,
    workload,
)
from tests.kubernetes.kube import Kube, Object, until
from tests.kubernetes.seen import reasons
from tests.kubernetes.stack import Stack

CONTROLLERS = {
    "Deployment": ("deployment-controller", "ReplicaSet"),
    "ReplicaSet": ("replicaset-controller", "Pod"),
    "ReplicationController": ("replication-controller", "Pod"),
    "StatefulSet": ("statefulset-controller", "Pod"),
    "DaemonSet": ("daemon-set-controller", "Pod"),
    "Job": ("job-controller", "Pod"),
    "CronJob": ("cronjob-controller", "Job"),
}
"""By kind of workload, its controller and the kind of object that this controller creates."""
BINDING = "ValidatingAdmissionPolicyBinding"
KUBELET = Person("system:node:none", ("system:nodes",))
THE_SHIM = account("evenhand-shim", "evenhand")
RULES = [
    {"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": ["*"]},
]
"""All rights within the namespace: what the policies refuse is not refused by RBAC."""


@pytest.fixture(scope="module")
def ask(kube: Kube) -> Iterator[Requests]:
    """Provide requests to a namespace in which all policies are in force, and in which everybody may do everything."""
    yield from _requests(kube, "true")


@pytest.fixture(scope="module")
def guarded(kube: Kube, ask: Requests) -> Iterator[Requests]:
    """Provide requests to a namespace in which only the guards are in force, as with an API server without the defaults."""
    assert ask.namespace
    yield from _requests(kube, "guards")


@pytest.fixture(scope="module", autouse=True)
def policies(kube: Kube) -> Iterator[None]:
    """Hold the policies in force while the tests of this module run."""
    with applied(kube, [*only_labelled(rendered(kube))]):
        yield


def _requests(kube: Kube, which: str) -> Iterator[Requests]:
    name = f"identity-{os.urandom(3).hex()}"
    item = objects.namespace(name)
    item["metadata"]["labels"] = {LABEL: which, "evenhand.io/scheduler": "evenhand"}
    rbac = "rbac.authorization.k8s.io"
    everybody = {"kind": "Group", "name": "system:authenticated", "apiGroup": rbac}
    head = {"apiVersion": f"{rbac}/v1", "metadata": {"name": "all", "namespace": name}}
    role = {"apiGroup": rbac, "kind": "Role", "name": "all"}
    kube.create(item)
    kube.ensure(objects.service_account("default", name))
    kube.create(head | {"kind": "Role", "rules": RULES})
    kube.create(head | {"kind": "RoleBinding", "roleRef": role, "subjects": [everybody]})
    with closing(Requests(kube, name)) as requests:
        wait_until_in_force(requests, defaults=which == "true")
        yield requests
    kube.delete_all("Pod", name)


# The user of a new object ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WORKLOADS)
@pytest.mark.parametrize(
    "notes", [None, {"a": "b"}, {USER: ALICE.info()}], ids=["none", "others", "forged"]
)
def test_a_new_workload_has_its_creator(
    ask: Requests, kind: str, notes: dict[str, str] | None
) -> None:
    item = made(ask.create(BOB, workload(kind, "w", notes)))
    assert user_of(item) == BOB.info()
    assert set(template(item)["metadata"]["annotations"]) == {USER, *(notes or {})}


@pytest.mark.parametrize("notes", [{}, {"annotations": {}}, {"annotations": {USER: ALICE.info()}}])
def test_a_new_pod_has_its_creator(ask: Requests, notes: Object) -> None:
    assert user_of(made(ask.create(BOB, pod("p", **notes)))) == BOB.info()


def test_names_are_written_as_json_whatever_they_hold(ask: Requests) -> None:
    odd = Person('o"neil\\ \u00e9 {"user":"alice"}', ("system:masters", 'a"b\\'))
    item = made(ask.create(odd, pod("p")))
    problems: list[str] = []
    marked = Marked("home", "uid", {}, item["metadata"]["annotations"])
    found = membership(marked, problems, unique=False)
    assert problems == []
    assert found.user == odd.name
    assert found.groups == (*odd.groups, "system:authenticated")


def test_a_pod_of_a_service_account_has_its_caller_not_the_account(ask: Requests) -> None:
    item = pod("p")
    item["spec"]["serviceAccountName"] = "default"
    assert user_of(made(ask.create(ALICE, item))) == ALICE.info()
    robot = account("robot", ask.namespace)
    assert (
        user_of(made(ask.create(robot, pod("p", annotations={USER: ALICE.info()})))) == robot.info()
    )


# Controllers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CONTROLLERS)
def test_what_a_controller_makes_has_the_user_of_the_template(ask: Requests, kind: str) -> None:
    """Alice creates the workload, and the controller copies its template."""
    controller, child = CONTROLLERS[kind]
    owner = made(ask.create(ALICE, workload(kind, "w")))
    copied = {"annotations": template(owner)["metadata"]["annotations"]}
    item = copy(child, owner, copied)
    assert user_of(made(ask.create(account(controller), item))) == ALICE.info()


def copy(kind: str, owner: Object, metadata: Object) -> Object:
    """Return the object that a controller makes of a template with this metadata."""
    if kind == "Pod":
        return pod("c", owner=owner, **metadata)
    item = workload(kind, "c", metadata["annotations"])
    item["metadata"]["ownerReferences"] = [controlled_by(owner)]
    return item


def test_a_template_without_a_user_stays_without_one(ask: Requests) -> None:
    """A workload that is older than the policies: its pods are of nobody, not of the controller."""
    owner = workload("ReplicaSet", "old")
    item = made(ask.create(account("replicaset-controller"), pod("c", owner=owner)))
    assert user_of(item) == ""


@pytest.mark.parametrize(
    "who",
    [
        BOB,
        account("robot", "home"),
        account("replicaset-controller", "home"),
        account("replicaset-controller"),
        account("namespace-controller"),
    ],
    ids=["user", "account", "name", "without-owner", "another"],
)
def test_no_other_caller_passes_a_user_on(ask: Requests, who: Person) -> None:
    """An owner reference makes no controller, and the controller passes nothing on to a pod that it does not own."""
    here = Person(who.name.replace(":home:", f":{ask.namespace}:"), who.groups)
    owner = (
        workload("ReplicaSet", "alices")
        if who.name != account("replicaset-controller").name
        else None
    )
    item = pod("c", owner=owner, annotations={USER: ALICE.info()})
    assert user_of(made(ask.create(here, item))) == here.info()


def test_the_shim_passes_the_user_on_to_placeholders(ask: Requests) -> None:
    notes = {USER: ALICE.info(), labels.PLACEHOLDER: "true", labels.GANG_SIZE: "2"}
    assert user_of(made(ask.create(THE_SHIM, pod("p", annotations=notes)))) == ALICE.info()


def test_a_kubelet_mirrors_its_static_pods_without_a_user(ask: Requests) -> None:
    mirror = {"kubernetes.io/config.mirror": "a", "kubernetes.io/config.source": "file"}
    item = pod("static-none", annotations=dict(mirror))
    item["spec"]["nodeName"] = "none"
    assert user_of(made(ask.create(KUBELET, item))) == ""
    assert user_of(made(ask.create(BOB, item))) == BOB.info()
    item["metadata"]["annotations"][USER] = ALICE.info()
    assert "names another user" in refused(ask.create(KUBELET, item))


# Administrators -------------------------------------------------------------------------------------------------


def test_only_who_may_impersonate_everybody_names_another(ask: Requests) -> None:
    """A service account with all rights applies what others wrote, and therefore names nobody."""
    item = pod("p", annotations={USER: ALICE.info()})
    assert user_of(made(ask.create(ADMIN, item))) == ALICE.info()
    assert user_of(made(ask.create(ADMIN, pod("p")))) == ADMIN.info()
    deployer = account("robot", ask.namespace)
    powerful = Person(deployer.name, (*deployer.groups, "system:masters"))
    assert user_of(made(ask.create(powerful, item))) == powerful.info()


def test_a_name_with_control_characters_is_written_by_nobody(ask: Requests) -> None:
    """Such a text would be no JSON, and its pod would have no user."""
    told = refused(ask.create(ADMIN, pod("p", annotations={USER: '{"user":"a\x01"}'})))
    assert "control characters" in told


# Without the defaults (API servers that have no MutatingAdmissionPolicies) ---------------------------------------


@pytest.mark.parametrize("kind", ["Pod", *WORKLOADS])
def test_without_the_defaults_users_write_their_own_name_or_none(
    guarded: Requests, kind: str
) -> None:
    def item(notes: dict[str, str]) -> Object:
        return pod("p", annotations=notes) if kind == "Pod" else workload(kind, "w", notes)

    assert user_of(made(guarded.create(BOB, item({"a": "b"})))) == ""
    for own in (BOB.info(), '{"user":"bob"}'):
        assert user_of(made(guarded.create(BOB, item({USER: own})))) == own
    for other in (ALICE.info(), '{"user":"alice"}', '{"user":"bob","groups":["admins"]}', "{}"):
        assert "names another user" in refused(guarded.create(BOB, item({USER: other})))


def test_without_the_defaults_a_user_is_added_once_and_not_removed(guarded: Requests) -> None:
    item = made(guarded.create(ALICE, workload("Deployment", "w"), dry=False))
    refused(guarded.patch(BOB, item, noted("Deployment", {USER: ALICE.info()})))
    made(guarded.patch(BOB, item, noted("Deployment", {USER: BOB.info()})))
    owned = made(
        guarded.create(ALICE, workload("Deployment", "o", {USER: ALICE.info()}), dry=False)
    )
    for change in (None, "", BOB.info()):
        refused(guarded.patch(BOB, owned, noted("Deployment", {USER: change})))


# Changes --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(ask: Requests) -> dict[str, Object]:
    """Provide a pod, a Deployment and a CronJob of Alice, which exist."""
    items = (pod("kept"), workload("Deployment", "kept"), workload("CronJob", "kept"))
    return {item["kind"]: made(ask.create(ALICE, item, dry=False)) for item in items}


KEPT = ("Pod", "Deployment", "CronJob")


def noted(kind: str, notes: object) -> Object:
    """Return a merge patch of the annotations of a pod or pod template."""
    change: Object = {"metadata": {"annotations": notes}}
    if kind == "Pod":
        return change
    change = {"spec": {"template": change}}
    return {"spec": {"jobTemplate": change}} if kind == "CronJob" else change


@pytest.mark.parametrize(
    "who", [ALICE, BOB, account("deployment-controller")], ids=["alice", "bob", "controller"]
)
@pytest.mark.parametrize("kind", KEPT)
def test_nobody_changes_the_user(
    ask: Requests, kept: dict[str, Object], kind: str, who: Person
) -> None:
    item = kept[kind]
    for written in (BOB.info(), '{"user":"bob"}', '{"user":"carol"}', "no json"):
        told = refused(ask.patch(who, item, noted(kind, {USER: written})))
        assert "cannot be changed" in told
    made(ask.patch(ADMIN, item, noted(kind, {USER: BOB.info()})))


@pytest.mark.parametrize("kind", KEPT)
def test_an_update_without_the_user_keeps_it(
    ask: Requests, kept: dict[str, Object], kind: str
) -> None:
    item = kept[kind]
    for change in ({USER: None}, None, {USER: ""}):
        assert user_of(made(ask.patch(BOB, item, noted(kind, change)))) == ALICE.info()
    bare = {**item, "metadata": {**item["metadata"], "annotations": {}, "managedFields": []}}
    if kind != "Pod":
        bare = {**item, "spec": workload(kind, "kept")["spec"]}
    assert user_of(made(ask.replace(BOB, bare))) == ALICE.info()


def test_server_side_apply_neither_takes_nor_drops_the_user(ask: Requests) -> None:
    """Applied twice, by two managers: the user is not theirs, although admission wrote it in their request."""
    item = workload("Deployment", "applied")
    place = "apis/apps/v1/deployments/applied?fieldManager="
    del item["spec"]["template"]["metadata"]["labels"]["app"]
    item["spec"]["template"]["metadata"]["labels"] = {"app": "applied"}
    for who, manager in ((ALICE, "a"), (ALICE, "a"), (BOB, "b")):
        found = made(ask.send(who, "PATCH", place + manager, item, kind=APPLY))
        assert user_of(found) == ALICE.info()
    forged = workload("Deployment", "applied", {USER: BOB.info()})
    answer = ask.send(BOB, "PATCH", f"{place}b&force=true", forged, kind=APPLY)
    assert "cannot be changed" in refused(answer)


@pytest.mark.parametrize(
    "key", ["yunikorn.apache.org~1user.info", "yunikorn.apache.org~1user%2einfo"]
)
def test_a_json_patch_is_judged_by_its_outcome(
    ask: Requests, kept: dict[str, Object], key: str
) -> None:
    path = f"/metadata/annotations/{key}"
    change = [{"op": "add", "path": path, "value": BOB.info()}]
    answer = ask.patch(BOB, kept["Pod"], change, PATCH)
    if "%" in key:  # Not an escape of JSON patch: an annotation of that name, which is not valid.
        assert answer.status_code == 422
    else:
        refused(answer)
    moved = [
        {"op": "add", "path": "/metadata/annotations/x", "value": BOB.info()},
        {
            "op": "move",
            "from": "/metadata/annotations/x",
            "path": "/metadata/annotations/yunikorn.apache.org~1user.info",
        },
    ]
    refused(ask.patch(BOB, kept["Pod"], moved, PATCH))


@pytest.mark.parametrize("sub", ["status", "ephemeralcontainers", "resize"])
def test_no_subresource_changes_the_user(ask: Requests, kept: dict[str, Object], sub: str) -> None:
    change = {"metadata": {"annotations": {USER: BOB.info()}}}
    answer = ask.patch(BOB, kept["Pod"], change, sub=sub)
    if answer.status_code in admission.SEEN:  # The subresource ignores the annotations.
        assert user_of(made(answer)) == ALICE.info()
    else:
        assert answer.status_code in {admission.FORBIDDEN, admission.ABSENT}, answer.text


def test_the_status_changes_the_user_where_no_policy_forbids_it(
    ask: Requests, kept: dict[str, Object]
) -> None:
    """The guard of pods/status is needed: an annotation that is not guarded is written through it."""
    found = made(
        ask.patch(BOB, kept["Pod"], {"metadata": {"annotations": {"a": "b"}}}, sub="status")
    )
    assert found["metadata"]["annotations"]["a"] == "b"
    refused(ask.patch(BOB, kept["Pod"], {"metadata": {"annotations": {USER: "x"}}}, sub="status"))


@pytest.mark.usefixtures("kept")
def test_a_binding_writes_no_annotation_of_ours(ask: Requests) -> None:
    for place in ("api/v1/pods/kept/binding" + DRY, "api/v1/bindings" + DRY):
        bad = binding("kept", annotations={USER: BOB.info()})
        assert "a binding may not" in refused(ask.send(BOB, "POST", place, bad))
        bad = binding("kept", annotations={labels.RELEASED_FOR: "d/u/n"})
        refused(ask.send(BOB, "POST", place, bad))
    made(ask.send(THE_SHIM, "POST", "api/v1/pods/kept/binding" + DRY, binding("kept")))


@pytest.mark.parametrize(
    "bad",
    [
        {"annotations": {labels.ALLOW_PREEMPTION: "false"}},
        {"labels": {labels.PREEMPTIBLE: "false"}},
    ],
    ids=["annotation", "label"],
)
@pytest.mark.usefixtures("kept")
def test_a_binding_opts_nobody_out(ask: Requests, bad: Object) -> None:
    """The API server copies the annotations of a binding to the pod, whose scheduler the binding does not tell."""
    for place in ("api/v1/pods/kept/binding" + DRY, "api/v1/bindings" + DRY):
        said = refused(ask.send(BOB, "POST", place, binding("kept", **bad)))
        assert "may not opt out of preemption" in said


def test_scaling_and_other_changes_stay_free(ask: Requests, kept: dict[str, Object]) -> None:
    made(ask.patch(BOB, kept["Deployment"], {"spec": {"replicas": 3}}, sub="scale"))
    made(
        ask.patch(
            BOB,
            kept["Deployment"],
            noted("Deployment", {"kubectl.kubernetes.io/restartedAt": "now"}),
        )
    )
    made(ask.patch(BOB, kept["Pod"], {"metadata": {"labels": {"a": "b"}}}))


def test_revisions_of_stateful_sets_are_written_by_controllers_alone(ask: Requests) -> None:
    """A StatefulSet makes pods from its revisions, and takes one without an owner as its own."""
    stateful, other = (
        workload("StatefulSet", "s"),
        workload("Deployment", "x") | {"apiVersion": "x.io/v1"},
    )
    for item in (revision("r"), revision("r", stateful)):
        assert "only the controllers" in refused(ask.create(BOB, item))
        made(ask.create(account("statefulset-controller"), item))
        made(ask.create(account("daemon-set-controller"), item))
    foreign = made(ask.create(BOB, revision("foreign", other), dry=False))
    refused(ask.patch(BOB, foreign, {"metadata": {"ownerReferences": None}}))
    made(ask.patch(BOB, foreign, {"revision": 2}))
    own = made(ask.create(account("statefulset-controller"), revision("own", stateful), dry=False))
    made(ask.patch(BOB, own, {"metadata": {"ownerReferences": None}}))
    assert ask.patch(BOB, own, {"data": {"spec": {"a": 1}}}).status_code == 422


# Evenhand's marks -----------------------------------------------------------------------------------------------


def test_a_revision_that_names_a_user_is_written_by_controllers_alone(ask: Requests) -> None:
    """A StatefulSet knows its revisions by the uid of their owner alone, whatever kind the owner is said to have."""
    stateful = workload("StatefulSet", "set")
    disguised = stateful | {"apiVersion": "example.com/v1", "kind": "Other"}
    named = revision("r", disguised)
    named["data"] = {"spec": {"template": {"metadata": {"annotations": {USER: ALICE.info()}}}}}
    assert "name-users" in refused(ask.create(BOB, named))
    made(ask.create(account("statefulset-controller"), named))
    named["data"]["spec"]["template"]["metadata"] = {"annotations": {"other": "note"}}
    made(ask.create(BOB, named))


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "template", "metadata", "Annotations"),
        ("spec", "template", "METADATA", "annotations"),
        ("spec", "Template", "metadata", "annotations"),
        ("\u017fpec", "template", "metadata", "annotation\u017f"),
    ],
    ids=["annotations", "metadata", "template", "long-s"],
)
def test_a_revision_names_a_user_with_keys_of_any_case(
    ask: Requests, path: tuple[str, ...]
) -> None:
    """The StatefulSet controller reads revisions with Go's JSON decoder, which ignores the case of keys."""
    data: Object = {USER: ALICE.info()}
    for key in reversed(path):
        data = {key: data}
    owner = workload("Deployment", "other") | {"apiVersion": "x.io/v1"}
    assert "name-users" in refused(ask.create(BOB, revision("r", owner) | {"data": data}))


@pytest.mark.parametrize(
    "data", [{"spec": None}, {"spec": {"template": "a"}}, {"spec": [1]}, {"template": {"a": 1}}]
)
def test_a_revision_of_another_project_may_have_any_other_data(ask: Requests, data: Object) -> None:
    owner = workload("Deployment", "other") | {"apiVersion": "x.io/v1"}
    made(ask.create(BOB, revision("r", owner) | {"data": data}))


def naming(item: Object, who: Person) -> Object:
    """Return a revision whose data names a user."""
    notes = {USER: who.info()}
    return item | {"data": {"spec": {"template": {"metadata": {"annotations": notes}}}}}


@pytest.fixture(scope="module")
def kruise(kube: Kube) -> Iterator[Person]:
    """Provide a controller of another project, which may name users in its revisions."""
    who = account("kruise-manager", f"kruise-{os.urandom(3).hex()}")
    rbac, name = "rbac.authorization.k8s.io", who.name.replace(":", "-")
    head: Object = {"apiVersion": f"{rbac}/v1", "metadata": {"name": name}}
    subject = {"kind": "User", "name": who.name, "apiGroup": rbac}
    rule = {
        "apiGroups": ["evenhand.io"],
        "resources": ["controllerrevisions"],
        "verbs": ["name-users"],
    }
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": name}
    items: list[Object] = [
        head | {"kind": "ClusterRole", "rules": [rule]},
        head | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    ]
    with applied(kube, items):
        yield who


def test_a_controller_of_another_project_writes_its_revisions(
    ask: Requests, kruise: Person
) -> None:
    """OpenKruise keeps the template of a CloneSet as a revision, also where the template names a user."""
    owner = workload("Deployment", "clones") | {"apiVersion": "apps.kruise.io/v1alpha1"}
    plain, named = revision("clones-1", owner), naming(revision("clones-2", owner), ALICE)
    collector = account("generic-garbage-collector")
    until(lambda: ask.create(kruise, named).status_code in admission.SEEN)
    for item in (plain, named):
        kept = made(ask.create(kruise, item, dry=False))
        made(ask.patch(kruise, kept, {"revision": 2}))
        made(ask.patch(collector, kept, {"metadata": {"finalizers": ["a.io/b"]}}))
    other = account("other-manager", "kruise")
    made(ask.create(other, revision("clones-3", owner)))
    assert "name-users" in refused(ask.create(other, naming(revision("clones-3", owner), ALICE)))


def test_a_revision_of_another_project_becomes_none_of_a_stateful_set(
    ask: Requests, kruise: Person
) -> None:
    """Without its owner, or with the uid of a StatefulSet as that of its owner, a StatefulSet would make pods from it."""
    owner = workload("Deployment", "hole") | {"apiVersion": "apps.kruise.io/v1alpha1"}
    disguised = controlled_by(owner) | {"uid": "00000000-0000-0000-0000-000000000002"}
    until(
        lambda: ask.create(kruise, naming(revision("h"), ALICE)).status_code == admission.FORBIDDEN
    )
    plain = made(ask.create(BOB, revision("hole-1", owner), dry=False))
    until(
        lambda: (
            ask.create(kruise, naming(revision("h", owner), ALICE)).status_code in admission.SEEN
        )
    )
    named = made(ask.create(kruise, naming(revision("hole-2", owner), ALICE), dry=False))
    collector, orphan = account("generic-garbage-collector"), {"ownerReferences": None}
    for who in (BOB, kruise, collector):
        refused(ask.patch(who, named, {"metadata": orphan}))
    refused(ask.patch(BOB, named, {"metadata": {"ownerReferences": [disguised]}}))
    refused(ask.patch(BOB, plain, {"metadata": orphan}))
    made(ask.patch(collector, plain, {"metadata": orphan}))
    for item in (
        naming(revision("h"), ALICE),
        naming(revision("h", workload("DaemonSet", "d")), ALICE),
    ):
        for who in (BOB, kruise, collector):
            refused(ask.create(who, item))


@pytest.mark.parametrize("key", sorted(labels.OWN_ANNOTATIONS))
def test_marks_are_written_by_the_shim_alone(
    ask: Requests, kept: dict[str, Object], key: str
) -> None:
    mark = {"metadata": {"annotations": {key: "x"}}}
    for who in (BOB, ADMIN, account("replicaset-controller")):
        assert key in refused(ask.create(who, pod("p", annotations={key: "x"})))
    for sub in ("", "status"):
        assert key in refused(ask.patch(BOB, kept["Pod"], mark, sub=sub))
        made(ask.patch(THE_SHIM, kept["Pod"], mark, sub=sub))
    made(ask.create(THE_SHIM, pod("p", annotations={key: "x"})))


def test_a_mark_is_not_removed_but_a_soft_eviction_is(ask: Requests) -> None:
    notes = {labels.RELEASED_FOR: "d/u/n", labels.SOFT_EVICTION: "{}"}
    item = pod("marked", annotations=notes, labels={labels.SOFT_EVICTION: "true"})
    marked = made(ask.create(THE_SHIM, item, dry=False))
    for key in notes:
        refused(ask.patch(ALICE, marked, {"metadata": {"annotations": {key: None}}}))
    refused(ask.patch(ALICE, marked, {"metadata": {"labels": {labels.SOFT_EVICTION: "false"}}}))
    made(ask.patch(ALICE, marked, {"metadata": {"labels": {labels.SOFT_EVICTION: None}}}))
    made(ask.patch(ALICE, marked, {"metadata": {"labels": {"a": "b"}}}))
    assert "label" in refused(ask.create(ALICE, pod("p", labels={labels.SOFT_EVICTION: "true"})))


# Preemption -----------------------------------------------------------------------------------------------------


def opting_out(kind: str) -> Object:
    item = pod("p")
    match kind:
        case "annotation":
            item["metadata"]["annotations"] = {labels.ALLOW_PREEMPTION: "false"}
        case "label":
            item["metadata"]["labels"] = {labels.PREEMPTIBLE: "false"}
        case "critical":
            item["spec"]["priorityClassName"] = "system-node-critical"
        case "daemon":
            item["metadata"]["ownerReferences"] = [controlled_by(workload("DaemonSet", "d"))]
        case _:
            item["spec"]["priorityClassName"] = kind
    return item


@pytest.mark.parametrize("kind", ["annotation", "label", "critical", "daemon"])
def test_an_opt_out_of_preemption_needs_the_namespace_s_label(ask: Requests, kind: str) -> None:
    item = opting_out(kind)
    told = refused(ask.create(BOB, item))
    assert "preemption" in told or "critical" in told or "DaemonSets" in told
    other = {**item, "spec": {**item["spec"], "schedulerName": "another"}}
    made(ask.create(BOB, other))  # Pods of other schedulers are never victims.


def test_a_class_that_opts_out_needs_the_namespace_s_label(ask: Requests, kube: Kube) -> None:
    """The class is read where it is: a class of that name with another annotation is free."""
    firm, free = (f"{name}-{os.urandom(3).hex()}" for name in ("firm", "free"))
    notes = {labels.ALLOW_PREEMPTION: "false"}
    kube.create(objects.priority_class(firm, 5, annotations=notes), objects.priority_class(free, 5))
    until(lambda: ask.create(BOB, opting_out(firm)).status_code == admission.FORBIDDEN)
    assert firm in refused(ask.create(BOB, opting_out(firm)))
    made(ask.create(BOB, opting_out(free)))
    allow(kube, ask.namespace, "true")
    try:
        until(lambda: ask.create(BOB, opting_out(firm)).status_code in admission.SEEN)
        for kind in ("annotation", "label", "critical"):
            made(ask.create(BOB, opting_out(kind)))
    finally:
        allow(kube, ask.namespace, None)
        for name in (firm, free):
            kube.delete("PriorityClass", name)
    until(lambda: ask.create(BOB, opting_out("label")).status_code == admission.FORBIDDEN)


def allow(kube: Kube, namespace: str, value: str | None) -> None:
    kube.patch("Namespace", namespace, {"metadata": {"labels": {"evenhand.io/may-opt-out": value}}})


def test_a_running_pod_does_not_opt_out_later(ask: Requests, kept: dict[str, Object]) -> None:
    for change in (
        {"labels": {labels.PREEMPTIBLE: "false"}},
        {"annotations": {labels.ALLOW_PREEMPTION: "false"}},
    ):
        for sub in ("", "status"):
            refused(ask.patch(ALICE, kept["Pod"], {"metadata": change}, sub=sub))


# The scheduler --------------------------------------------------------------------------------------------------


def test_the_namespace_s_label_chooses_the_scheduler(ask: Requests) -> None:
    def scheduler(**spec: str) -> str:
        item = pod("p")
        item["spec"] |= spec
        return str(made(ask.create(ALICE, item))["spec"]["schedulerName"])

    assert scheduler() == "evenhand"
    assert scheduler(schedulerName="default-scheduler") == "evenhand"
    assert scheduler(schedulerName="another") == "another"
    assert scheduler(nodeName="none") == "default-scheduler"


# Namespaces and versions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kube-system", "kube-public"])
@pytest.mark.usefixtures("ask")
def test_the_namespaces_of_kubernetes_are_left_out(kube: Kube, name: str) -> None:
    """A broken policy must not keep the cluster's own pods from starting."""
    with labelled(kube, name), closing(Requests(kube, name)) as elsewhere:
        item = made(elsewhere.create(ADMIN, pod("p", annotations={labels.DELIVERY: "x"})))
        assert user_of(item) == ""
        assert item["spec"]["schedulerName"] == "default-scheduler"


@contextmanager
def labelled(kube: Kube, name: str) -> Iterator[None]:
    """Give a namespace the labels of the tests' own while the block runs."""
    marks = {LABEL: "true", "evenhand.io/scheduler": "evenhand"}
    kube.patch("Namespace", name, {"metadata": {"labels": marks}})
    try:
        yield
    finally:
        kube.patch("Namespace", name, {"metadata": {"labels": dict.fromkeys(marks)}})


@pytest.mark.parametrize("folder", ["", "v1beta1", "v1alpha1"])
def test_each_version_of_the_api_has_the_same_policies(kube: Kube, folder: str) -> None:
    def bare(items: list[Object]) -> list[Object]:
        bare = [{key: it[key] for key in it if key != "apiVersion"} for it in items]
        return sorted(bare, key=lambda it: (it["kind"], it["metadata"]["name"]))

    items = rendered(kube, folder or ".")
    assert bare(items) == bare(rendered(kube, "."))
    versions = {one["apiVersion"] for one in items if one["kind"].startswith("Mutating")}
    assert versions == {f"admissionregistration.k8s.io/{folder or 'v1'}"}


def test_the_policies_are_off_by_default(kube: Kube) -> None:
    assert not any("AdmissionPolicy" in one["kind"] for one in rendered(kube, ".."))


# The shim -------------------------------------------------------------------------------------------------------


def test_the_shim_trusts_users_only_while_the_policy_is_there(
    kube: Kube, namespace: str, stack: Stack, ask: Requests
) -> None:
    """With `service.trustUserInfo: enforced`: a pod of Alice counts as hers, then the binding goes, then it is back."""
    assert ask.namespace
    settings = {"service.trustUserInfo": "enforced"}
    kube.create(objects.config_map(namespace, settings), *objects.nodes(1, namespace))
    guards = [one for one in only_labelled(rendered(kube)) if one["kind"].startswith("Validating")]
    [bound] = [one for one in guards if names(one) == (BINDING, "evenhand-user")]
    kube.patch("Namespace", namespace, {"metadata": {"labels": {LABEL: "guards"}}})
    stack.start()
    until(lambda: "UserInfoTrusted" in on_settings(kube, namespace))

    def user_of_new(name: str) -> str:
        item = objects.pod(
            name, namespace, annotations={USER: ALICE.info()}, labels={"applicationId": name}
        )
        kube.create(item)
        until(lambda: name in users(stack))
        return users(stack)[name]

    until(lambda: user_of_new(f"p-{os.urandom(3).hex()}") == "alice")
    kube.delete(BINDING, "evenhand-user")
    until(lambda: "UserInfoNotTrusted" in on_settings(kube, namespace))
    name = f"p-{os.urandom(3).hex()}"
    assert user_of_new(name) == f"system:namespace:{namespace}"
    assert "UserInfoNotTrusted" in reasons(kube, namespace, name)
    with applied(kube, [bound]):
        until(lambda: user_of_new(f"p-{os.urandom(3).hex()}") == "alice")


def names(item: Object) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def on_settings(kube: Kube, namespace: str) -> set[str]:
    """Return the reasons of the events on the shim's ConfigMaps."""
    return set(reasons(kube, namespace, "yunikorn-configs", "ConfigMap"))


def users(stack: Stack) -> dict[str, str]:
    """Return the user of each application of the core, by the name that its pods give the application."""
    said = stack.evenhand("apps", "--output=json")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)["applications"]
    return {one["application_id"].rpartition("-")[0]: one["user"] for one in found}
