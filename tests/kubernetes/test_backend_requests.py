"""Requests to an API server that answers correctly, wrongly or not at all; no real one is needed."""

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from shim_client.cluster import (
    Bind,
    BudgetError,
    ClusterError,
    ConflictError,
    CreatePod,
    DeletePod,
    ElsewhereError,
    EvictPod,
    ForbiddenError,
    MissingError,
    ObjectRef,
    PatchPod,
    RecordEvent,
)
from shim_client.kubernetes import api as api_module
from shim_client.kubernetes.access import NoAccessError, access_config, http_client
from shim_client.kubernetes.api import Api, Rate
from shim_client.kubernetes.cluster import KubernetesCluster
from shim_client.kubernetes.events import SIMILAR_MAX
from tests.kubernetes.fake_api import (
    HANG,
    Answer,
    Asked,
    Handler,
    event,
    listing,
    status,
    stream,
    world,
)

REF = ObjectRef("Pod", "work", "a", "uid-a")
POD = "/api/v1/namespaces/work/pods/a"


def fixed(*answers: Answer | str) -> Handler:
    """Return a handler that gives the answers in turn, then repeats the last one."""
    left = list(answers)

    def handle(_: Asked) -> Answer | str:
        return left.pop(0) if len(left) > 1 else left[0]

    return handle


def pod(node: str = "", uid: str = "uid-a") -> Answer:
    return Answer(body={"metadata": {"name": "a", "uid": uid}, "spec": {"nodeName": node}})


async def test_lists_come_in_pages_and_lose_what_nobody_reads(tmp_path: Path) -> None:
    fat: dict[str, Any] = {
        "metadata": {
            "name": "a",
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "k": "v"},
        },
        "spec": {
            "schedulerName": "evenhand",
            "containers": [{"name": "c", "image": "i", "env": [{"name": "X"}], "resources": {}}],
            "volumes": [
                {"name": "t", "emptyDir": {}},
                {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
            ],
        },
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
    }

    def handle(asked: Asked) -> Answer:
        return listing(fat, more="" if "continue" in asked.query else "next", version=77)

    async with world(tmp_path, handle) as here:
        found = await here.cluster.list_objects("Pod")
        assert [one.query for one in here.api.asked] == [
            {"limit": "500"},
            {"limit": "500", "continue": "next"},
        ]
        assert here.api.asked[0].path == "/api/v1/pods"
        assert here.api.asked[0].headers["authorization"] == "Bearer secret"
        await here.cluster.list_objects("ConfigMap")
        assert here.api.asked[-1].path == "/api/v1/namespaces/own/configmaps"
    assert (len(found.items), found.version) == (2, 77)
    assert found.items[0] == {
        "kind": "Pod",
        "metadata": {"name": "a", "annotations": {"k": "v"}},
        "spec": {
            "schedulerName": "evenhand",
            "containers": [{"name": "c", "resources": {}}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        },
        "status": {"phase": "Running"},
    }


EXPIRED = status(410, "The provided continue parameter is too old")


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (status(500, "etcd is away"), 0.0),
        (status(503, "starting", details={"retryAfterSeconds": 9}), 9.0),
        (Answer(429, {"kind": "Status"}, {"Retry-After": "7"}), 7.0),
        (Answer(429, {"kind": "Status"}, {"Retry-After": "soon"}), 0.0),
        (Answer(502, b"<html>bad gateway</html>"), 0.0),
        (Answer(200, b"<html>a proxy's page</html>"), 0.0),
        (Answer(200, []), 0.0),
        (Answer(200, {"kind": "PodList", "items": []}), 0.0),
        (status(403, "no"), 0.0),
        (EXPIRED, 0.0),
    ],
)
async def test_what_may_pass_is_worth_another_try(
    tmp_path: Path, answer: Answer, seconds: float
) -> None:
    async with world(tmp_path, fixed(answer)) as here:
        with pytest.raises(ClusterError) as caught:
            await here.cluster.list_objects("Pod")
    assert not isinstance(caught.value, ConflictError | MissingError)
    assert caught.value.retry_after == seconds


async def test_a_server_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "REQUEST_SECONDS_MAX", 0.05)
    async with world(tmp_path, fixed(HANG)) as here:
        with pytest.raises(ClusterError, match="no answer"):
            await here.cluster.list_objects("Pod")


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(listing())) as here:
        pass
    api = Api(http_client(access_config(here.kubeconfig, None)))
    with pytest.raises(ClusterError, match="no answer from the API server"):
        await KubernetesCluster(api, "own", lambda: 0).list_objects("Pod")
    await api.close()


async def test_a_binding_names_pod_and_node(tmp_path: Path) -> None:
    done = Answer(201, {"kind": "Status", "status": "Success"})
    async with world(tmp_path, fixed(done)) as here:
        await here.cluster.bind(Bind(REF, "n1"))
        asked = here.api.asked[0]
    assert (asked.method, asked.path) == ("POST", f"{POD}/binding")
    assert asked.body["metadata"] == {"name": "a", "namespace": "work", "uid": "uid-a"}
    assert asked.body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}


TAKEN = status(409, "already assigned", reason="Conflict")


async def test_a_conflict_is_judged_by_the_pod_itself(tmp_path: Path) -> None:
    async def outcome(answer: Answer) -> ClusterError | None:
        async with world(tmp_path, fixed(TAKEN, answer)) as here:
            try:
                await here.cluster.bind(Bind(REF, "n1"))
            except ClusterError as error:
                return error
        return None

    assert await outcome(pod("n1")) is None
    elsewhere = await outcome(pod("n2"))
    assert isinstance(elsewhere, ElsewhereError)
    assert elsewhere.node == "n2"
    assert isinstance(await outcome(pod("n1", uid="another")), MissingError)
    assert isinstance(await outcome(status(404, "not found")), MissingError)
    assert type(await outcome(pod())) is ConflictError
    assert type(await outcome(status(500, "etcd is away"))) is ClusterError


async def test_a_volume_is_made_for_the_node_before_the_pod_is_bound(tmp_path: Path) -> None:
    phase, notes = "Pending", dict[str, str]()

    def handle(asked: Asked) -> Answer:
        if asked.method == "PATCH":
            notes.update(asked.body["metadata"]["annotations"])
        return Answer(body={"metadata": {"annotations": notes}, "status": {"phase": phase}})

    async with world(tmp_path, handle) as here:
        for _ in range(2):
            with pytest.raises(ClusterError, match="no volume yet"):
                await here.cluster.bind(Bind(REF, "n1", (("c", ""),)))
        assert len(here.api.of("PATCH", "/persistentvolumeclaims/c")) == 1
        assert notes == {"volume.kubernetes.io/selected-node": "n1"}
        phase = "Bound"
        await here.cluster.bind(Bind(REF, "n1", (("c", ""),)))
        assert len(here.api.of("POST", "/binding")) == 1


async def test_a_claim_is_written_into_its_volume_before_the_pod_is_bound(tmp_path: Path) -> None:
    """The volume controller binds the two; a volume that another claim got meanwhile is left alone."""
    claim: dict[str, Any] = {
        "metadata": {"name": "c", "namespace": "work", "uid": "uid-c", "resourceVersion": "7"},
        "spec": {},
        "status": {"phase": "Pending"},
    }
    volume: dict[str, Any] = {"metadata": {"name": "v", "resourceVersion": "9"}, "spec": {}}

    def handle(asked: Asked) -> Answer:
        if "persistentvolumeclaims" in asked.path:
            return Answer(body=claim)
        if asked.method == "PATCH":
            assert asked.body["metadata"]["resourceVersion"] == "9"
            volume["spec"] |= asked.body["spec"]
        return Answer(body=volume)

    async with world(tmp_path, handle) as here:
        order = Bind(REF, "n1", (("c", "v"),))
        for _ in range(2):
            with pytest.raises(ClusterError, match="'c' has no volume yet"):
                await here.cluster.bind(order)
        assert len(here.api.of("PATCH", "/persistentvolumes/v")) == 1
        assert volume["spec"]["claimRef"]["uid"] == "uid-c"
        claim["status"]["phase"], claim["spec"]["volumeName"] = "Bound", "v"
        await here.cluster.bind(order)
        assert len(here.api.of("POST", "/binding")) == 1
        claim["spec"]["volumeName"] = "w"
        with pytest.raises(ConflictError, match="was bound to 'w' meanwhile"):
            await here.cluster.bind(order)
        claim["status"]["phase"] = "Pending"
        volume["spec"]["claimRef"] = {"namespace": "work", "name": "d", "uid": "uid-d"}
        with pytest.raises(ConflictError, match="was bound to claim work/d meanwhile"):
            await here.cluster.bind(order)
        assert len(here.api.of("POST", "/binding")) == 1


MADE = {
    "metadata": {
        "name": "a",
        "namespace": "work",
        "annotations": {"group": "g"},
        "ownerReferences": [{"uid": "uid-first"}],
    }
}
CREATE = CreatePod(ObjectRef("Pod", "work", "a"), MADE, "uid-first")


@pytest.mark.parametrize("deep", [100_000, 0], ids=["nested too deeply", "half a letter"])
async def test_a_pod_that_cannot_be_written_is_refused_before_it_is_sent(
    tmp_path: Path, deep: int
) -> None:
    spec: Any = "\ud800"
    for _ in range(deep):
        spec = [spec]
    async with world(tmp_path, fixed(status(404, "not found"))) as here:
        with pytest.raises(ConflictError, match="no JSON"):
            await here.cluster.create_pod(CreatePod(CREATE.pod, {**MADE, "spec": spec}))
        assert here.api.of("POST") == []


async def test_a_pod_is_made_in_its_namespace(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(Answer(201, MADE))) as here:
        await here.cluster.create_pod(CREATE)
        asked = here.api.asked[0]
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/work/pods")
    assert asked.body == MADE


async def test_a_pod_that_was_made_before_is_left_as_it_is(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(TAKEN, Answer(body=MADE))) as here:
        await here.cluster.create_pod(CREATE)
        assert [asked.method for asked in here.api.asked] == ["POST", "GET"]


async def test_another_pod_of_the_name_and_a_refusal_are_told(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(TAKEN, pod())) as here:
        with pytest.raises(ConflictError):
            await here.cluster.create_pod(CREATE)
    async with world(tmp_path, fixed(status(422, "invalid"), status(404, "none"))) as here:
        with pytest.raises(ConflictError, match="invalid"):
            await here.cluster.create_pod(CREATE)
    async with world(tmp_path, fixed(status(403, "exceeded quota"))) as here:
        with pytest.raises(ClusterError, match="exceeded quota"):
            await here.cluster.create_pod(CREATE)


async def test_a_deletion_keeps_the_pods_own_grace_and_names_the_pod(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(Answer(body={"kind": "Pod"}))) as here:
        await here.cluster.delete_pod(DeletePod(REF))
        asked = here.api.asked[0]
    assert (asked.method, asked.path, asked.query) == ("DELETE", POD, {})
    assert asked.body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "uid-a"},
    }


async def test_a_deletion_of_a_pod_that_is_another_one_by_now(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(TAKEN, pod(uid="another"))) as here:
        with pytest.raises(MissingError):
            await here.cluster.delete_pod(DeletePod(REF))
    async with world(tmp_path, fixed(TAKEN, pod())) as here:
        with pytest.raises(ConflictError):
            await here.cluster.delete_pod(DeletePod(REF))


async def test_an_eviction_names_the_pod_and_keeps_its_grace(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(Answer(201, {"kind": "Status"}))) as here:
        await here.cluster.evict_pod(EvictPod(REF))
        asked = here.api.asked[0]
    assert (asked.method, asked.path) == ("POST", f"{POD}/eviction")
    assert asked.body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "a", "namespace": "work"},
        "deleteOptions": {"preconditions": {"uid": "uid-a"}},
    }


BUDGET = {
    "causes": [{"reason": "DisruptionBudget", "message": "The disruption budget web needs 3"}]
}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(429, "Cannot evict pod", details=BUDGET), BudgetError),
        (status(429, "too many requests", details={"retryAfterSeconds": 1}), ClusterError),
        (status(404, "not found"), MissingError),
        (status(500, "more than one PodDisruptionBudget"), ClusterError),
    ],
)
async def test_an_eviction_that_is_refused(
    tmp_path: Path, answer: Answer, error: type[ClusterError]
) -> None:
    async with world(tmp_path, fixed(answer, pod())) as here:
        with pytest.raises(ClusterError) as caught:
            await here.cluster.evict_pod(EvictPod(REF))
    assert type(caught.value) is error


async def test_an_eviction_of_a_pod_that_is_another_one_by_now(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(TAKEN, pod(uid="another"))) as here:
        with pytest.raises(MissingError):
            await here.cluster.evict_pod(EvictPod(REF))


async def test_an_annotation_is_taken_away(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(Answer(body={"kind": "Pod"}))) as here:
        await here.cluster.patch_pod(PatchPod(REF, annotations={"k": None}))
    [asked] = here.api.asked
    assert asked.body == {"metadata": {"uid": "uid-a", "annotations": {"k": None}}}


async def test_labels_and_annotations_are_patched_together(tmp_path: Path) -> None:
    """One request carries both: a reader of the label finds the annotation (J11)."""
    async with world(tmp_path, fixed(Answer(body={"kind": "Pod"}))) as here:
        await here.cluster.patch_pod(PatchPod(REF, {"k": "{}"}, {"k": "true"}))
    [asked] = here.api.asked
    assert asked.body == {
        "metadata": {"uid": "uid-a", "labels": {"k": "true"}, "annotations": {"k": "{}"}}
    }


OWNER = ObjectRef("Job", "work", "train", "uid-train")


def owner(spec: dict[str, Any], uid: str = "uid-train") -> Answer:
    return Answer(body={"metadata": {"name": "train", "uid": uid}, "spec": spec})


@pytest.mark.parametrize(
    ("kind", "field", "path"),
    [
        ("Job", "parallelism", "/apis/batch/v1/namespaces/work/jobs/train"),
        ("ReplicaSet", "replicas", "/apis/apps/v1/namespaces/work/replicasets/train"),
        ("StatefulSet", "replicas", "/apis/apps/v1/namespaces/work/statefulsets/train"),
    ],
)
async def test_an_owner_says_how_many_pods_it_wants(
    tmp_path: Path, kind: str, field: str, path: str
) -> None:
    ref = ObjectRef(kind, "work", "train", "uid-train")
    async with world(tmp_path, fixed(owner({field: 5}))) as here:
        assert await here.cluster.pods_wanted(ref) == 5
    assert [(one.method, one.path) for one in here.api.asked] == [("GET", path)]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (owner({}, uid="another"), MissingError),
        (status(404, "not found"), MissingError),
        (status(403, "forbidden"), ForbiddenError),
        (owner({"parallelism": "five"}), ConflictError),
    ],
)
async def test_an_owner_that_says_nothing(
    tmp_path: Path, answer: Answer, error: type[ClusterError]
) -> None:
    async with world(tmp_path, fixed(answer)) as here:
        with pytest.raises(ClusterError) as caught:
            await here.cluster.pods_wanted(OWNER)
    assert type(caught.value) is error


async def test_conditions_and_annotations_are_patched_if_it_is_the_same_pod(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(Answer(body={"kind": "Pod"}))) as here:
        said = ("PodScheduled", "False", "Unschedulable", "no node")
        await here.cluster.patch_pod(PatchPod(REF, annotations={"k": "v"}, condition=said))
        await here.cluster.patch_pod(PatchPod(REF, phase="Failed", reason="R", message="m"))
        notes, condition, phase = here.api.asked
    assert (notes.path, notes.headers["content-type"]) == (POD, "application/merge-patch+json")
    assert notes.body == {"metadata": {"uid": "uid-a", "annotations": {"k": "v"}}}
    assert condition.path == f"{POD}/status"
    assert condition.headers["content-type"] == "application/strategic-merge-patch+json"
    assert condition.body["metadata"] == {"uid": "uid-a"}
    assert condition.body["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "no node",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    assert phase.body["status"] == {"phase": "Failed", "reason": "R", "message": "m"}


async def test_equal_events_are_counted_in_one(tmp_path: Path) -> None:
    order = RecordEvent(REF, "Scheduled", "assigned", warning=False)
    async with world(tmp_path, fixed(Answer(201, {"kind": "Event"}))) as here:
        for _ in range(3):
            await here.cluster.record_event(order)
            here.now_ms += 1000
        made, *counted = here.api.asked
    assert (made.method, made.path) == ("POST", "/api/v1/namespaces/work/events")
    assert made.body["involvedObject"] == {
        "apiVersion": "v1", "kind": "Pod", "namespace": "work", "name": "a", "uid": "uid-a",
    }  # fmt: skip
    assert (made.body["type"], made.body["count"]) == ("Normal", 1)
    assert [(one.method, one.body["count"]) for one in counted] == [("PATCH", 2), ("PATCH", 3)]
    assert counted[-1].body["lastTimestamp"] == "2026-01-01T00:00:02Z"
    assert counted[-1].path == f"{made.path}/{made.body['metadata']['name']}"


async def test_an_event_that_the_server_forgot_is_made_anew(tmp_path: Path) -> None:
    made = Answer(201, {"kind": "Event"})
    async with world(tmp_path, fixed(made, status(404, "gone"), made)) as here:
        for _ in range(2):
            await here.cluster.record_event(RecordEvent(REF, "R", "m"))
        assert [one.method for one in here.api.asked] == ["POST", "PATCH", "POST"]


async def test_many_similar_events_become_one(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(Answer(201, {"kind": "Event"}))) as here:
        for number in range(SIMILAR_MAX + 5):
            await here.cluster.record_event(RecordEvent(REF, "R", f"message {number}"))
        assert len(here.api.of("POST")) == SIMILAR_MAX + 1
        assert here.api.asked[-1].body["message"].startswith("(combined from similar events)")


async def test_an_object_without_a_namespace_has_its_events_in_the_default_one(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, fixed(Answer(201, {"kind": "Event"}))) as here:
        for kind in ("Node", "PriorityClass"):
            about = ObjectRef(kind, "", "x")
            await here.cluster.record_event(RecordEvent(about, "R", "m", warning=True))
        node, kind_ = here.api.asked
    assert node.path == kind_.path == "/api/v1/namespaces/default/events"
    assert kind_.body["involvedObject"]["apiVersion"] == "scheduling.k8s.io/v1"
    assert node.body["type"] == "Warning"


async def test_a_namespace_that_ends_takes_no_events(tmp_path: Path) -> None:
    ends = status(403, "no", details={"causes": [{"reason": "NamespaceTerminating"}]})
    async with world(tmp_path, fixed(ends)) as here:
        with pytest.raises(MissingError):
            await here.cluster.record_event(RecordEvent(REF, "R", "m"))


GROUPS = "/apis/scheduling.k8s.io/{}/podgroups"


@pytest.mark.parametrize(
    ("codes", "watched"),
    [
        ({"v1beta1": 200}, "v1beta1"),
        ({"v1beta1": 404, "v1alpha2": 200}, "v1alpha2"),
        ({"v1beta1": 404, "v1alpha2": 404}, ""),
        ({"v1beta1": 403, "v1alpha2": 403}, ""),
    ],
)
async def test_an_optional_kind_is_read_in_the_version_that_is_served(
    tmp_path: Path, codes: dict[str, int], watched: str
) -> None:
    def answer(asked: Asked) -> Answer:
        code = codes[asked.path.split("/")[3]]
        if "watch" in asked.query:
            return stream(event("ADDED", "g", 11))
        return listing(version=10) if code == HTTPStatus.OK else status(code, "no")

    async with world(tmp_path, answer) as here:
        found = await here.cluster.list_objects("PodGroup")
        assert (found.served, found.items) == (bool(watched), [])
        if watched:
            events = [one async for one in here.cluster.watch("PodGroup", found.version)]
            assert [one.version for one in events] == [11]
            assert here.api.asked[-1].path == GROUPS.format(watched)


@pytest.mark.parametrize(("code", "error"), [(403, ForbiddenError), (404, MissingError)])
async def test_a_kind_that_every_cluster_has_must_be_read(
    tmp_path: Path, code: int, error: type[ClusterError]
) -> None:
    async with world(tmp_path, fixed(status(code, "no"))) as here:
        with pytest.raises(error):
            await here.cluster.list_objects("Pod")


async def test_an_error_of_an_optional_kind_is_an_error(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(status(500, "no"))) as here:
        with pytest.raises(ClusterError):
            await here.cluster.list_objects("PodGroup")


async def test_requests_keep_to_their_rate(tmp_path: Path) -> None:
    async with world(tmp_path, fixed(listing()), Rate(qps=100, burst=5)) as here:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await asyncio.gather(*(here.cluster.list_objects("Node") for _ in range(25)))
        assert loop.time() - begin >= 0.19


def test_access_is_refused_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(NoAccessError, match="config"):
        access_config(None, None)
    bad = tmp_path / "bad"
    bad.write_text("clusters: 5")
    with pytest.raises(NoAccessError):
        access_config(bad, None)
    with pytest.raises(NoAccessError):
        access_config(tmp_path / "missing", None)
