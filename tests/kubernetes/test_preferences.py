"""Preferences on a real API server: pods go to the nodes that they prefer, and are spread over zones where they may be uneven."""

from collections import Counter
from typing import Any

from tests.kubernetes import objects
from tests.kubernetes.kube import Kube, Object, until
from tests.kubernetes.seen import placed
from tests.kubernetes.stack import Stack

ZONE = "topology.kubernetes.io/zone"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def zoned(of: str, zones: str) -> list[Object]:
    """Return a node for each letter, in the zone with that name; the later nodes are larger, and so are emptier."""
    found = [
        objects.node(f"{of}-{at}", of, cpu=str(8 + 4 * at), memory=f"{32 + 16 * at}Gi")
        for at in range(len(zones))
    ]
    for node, zone in zip(found, zones, strict=True):
        node["metadata"]["labels"][ZONE] = zone
    return found


def replicas(count: int, of: str, app: str, **spec: Any) -> list[Object]:
    """Return pods as a Deployment makes them: of one template, with one label."""
    return objects.pods(count, of, app, labels={"app": app}, **spec)


def zones_of(kube: Kube, namespace: str, app: str) -> Counter[str]:
    """Return the number of pods of an app by the zone of their nodes; pods without a node are left out."""
    zones = {
        node["metadata"]["name"]: node["metadata"]["labels"][ZONE]
        for node in kube.all("Node", "", {objects.OF: namespace})
    }
    return Counter(
        zones[node] for name, node in placed(kube, namespace).items() if name.startswith(app)
    )


def prefers_zone(zone: str) -> dict[str, Any]:
    wanted = {"key": ZONE, "operator": "In", "values": [zone]}
    term = {"weight": 50, "preference": {"matchExpressions": [wanted]}}
    return {"affinity": {"nodeAffinity": {PREFERRED: [term]}}}


def test_pods_land_where_they_prefer_and_are_spread_where_they_ask_for_it(
    kube: Kube, namespace: str, stack: Stack
) -> None:
    kube.create(*zoned(namespace, "abbbc"))
    rule = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    kube.create(*replicas(6, namespace, "api", **prefers_zone("a")))
    kube.create(*replicas(9, namespace, "web", topologySpreadConstraints=[rule]))
    stack.start()
    until(lambda: len(placed(kube, namespace)) == 15)
    assert zones_of(kube, namespace, "api") == {"a": 6}
    assert zones_of(kube, namespace, "web") == {"a": 3, "b": 3, "c": 3}

    kube.create(*replicas(1, namespace, "cache", **prefers_zone("b")))
    until(lambda: zones_of(kube, namespace, "cache") == {"b": 1})
    near = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "cache"}}}
    wish = {"podAffinity": {PREFERRED: [{"weight": 10, "podAffinityTerm": near}]}}
    kube.create(*replicas(3, namespace, "near", affinity=wish))
    until(lambda: sum(zones_of(kube, namespace, "near").values()) == 3)
    assert zones_of(kube, namespace, "near") == {"b": 3}
    told = stack.evenhand("explain", f"{namespace}/api-0").stdout
    assert "Its preferences chose the node: it scores 50" in told
    assert stack.evenhand("doctor").returncode == 0
