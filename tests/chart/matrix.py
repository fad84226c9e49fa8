"""Values with which the chart is rendered: one entry for each way to install Evenhand."""

from typing import Any, Final

PLAIN: Final[dict[str, Any]] = {
    "image.tag": "dev",
    "tls.mode": "secrets",
    "namespace.create": True,
}
"""The values with which the chart renders the objects of deploy/."""
PAIR: Final = PLAIN | {"core.replicas": 2, "shim.replicas": 2}
"""The values with which the chart renders the objects of deploy-ha/."""

MATRIX: Final[dict[str, dict[str, Any]]] = {
    "defaults": {},
    "plain": PLAIN,
    "pair": PAIR,
    "one core and two shims": {"shim.replicas": 2},
    "two cores and one shim": {"core.replicas": 2, "core.spread.nodes": "preferred"},
    "certificates by cert-manager": {"tls.mode": "certManager"},
    "certificates by an issuer of one's own": {
        "tls.mode": "certManager",
        "tls.certManager.issuer.name": "corporate",
        "tls.certManager.issuer.kind": "ClusterIssuer",
    },
    "a volume for one core": {
        "core.state.persistent": True,
        "core.state.storageClass": "fast",
        "core.decisionLog.enabled": True,
        "core.decisionLog.durable": True,
    },
    "a log on NATS, a history in PostgreSQL": {
        "core.replicas": 2,
        "core.log.url": "tls://nats.example:4222/prod",
        "core.log.credentialsSecret": "nats-credentials",
        "core.log.caSecret": "nats-ca",
        "core.history.url": "postgresql+psycopg://evenhand@db.example/evenhand",
        "core.history.passwordSecret": "history",
        "core.history.retention": "30d",
    },
    "every option of history and lease": {
        "shim.replicas": 2,
        "shim.lease.name": "evenhand-shims",
        "shim.lease.duration": "9s",
        "shim.lease.renew": "3s",
        "shim.lease.margin": "2s",
        "shim.qps": 50,
        "shim.burst": 100,
        "core.history.retention": "30d",
        "core.history.minutesAfter": "3h",
        "core.history.tenMinutesAfter": "2d",
        "core.history.sample": "5s",
        "core.history.sizeMax": "500MiB",
        "core.tokensSecret": "tokens",
    },
    "no history": {"core.history.enabled": False},
    "monitoring": {
        "shim.metrics": True,
        "monitoring.serviceMonitor.enabled": True,
        "monitoring.podMonitor.enabled": True,
        "monitoring.prometheusRule.enabled": True,
        "monitoring.dashboards.enabled": True,
    },
    "admission policies": {"admissionPolicies.enabled": True},
    "console": {"console.enabled": True, "core.tokensSecret": "tokens", "console.replicas": 2},
    "groups of cores": {
        "core.replicas": 2,
        "core.group.revision": 3,
        "core.groups": [
            {"name": "b", "partitions": ["gpu", "on"], "revision": 12_345_678},
            {"name": "no"},
        ],
        "core.tokensSecret": "tokens",
        "shim.replicas": 2,
        "console.enabled": True,
        "monitoring.serviceMonitor.enabled": True,
    },
    "other names": {
        "fullnameOverride": "second",
        "clusterId": "gpu",
        "schedulerNames": ["second", "yunikorn"],
        "settings": {"kubernetes.qps": "100"},
        "core.roles": [{"name": "ada.example", "role": "viewer", "queue": "root.research"}],
        "core.revoked": [{"serial": "0a:1b"}],
        "core.priorityClassName": "",
        "core.tolerations": [{"key": "control", "operator": "Exists"}],
        "shim.nodeSelector": {"role": "control"},
        "shim.affinity": {"nodeAffinity": {}},
        "labels": {"team": "platform"},
        "image.digest": f"sha256:{'0' * 64}",
        "image.pullSecrets": ["registry"],
        "networkPolicy.readers": True,
        "admissionPolicies.enabled": True,
    },
}
