"""The labels, annotations and tags that cluster users and the core know, spelled exactly."""

from __future__ import annotations

import re

APP_ID = "yunikorn.apache.org/app-id"
APP_ID_OLD = "applicationId"
APP_ID_SPARK = "spark-app-selector"
QUEUE = "yunikorn.apache.org/queue"
QUEUE_OLD = "queue"
PARTITION = "evenhand.io/partition"
USER_INFO = "yunikorn.apache.org/user.info"
PLACEHOLDER = "internal.yunikorn.apache.org/placeholder"
TASK_GROUP = "yunikorn.apache.org/task-group-name"
TASK_GROUPS = "yunikorn.apache.org/task-groups"
POLICY_PARAMETERS = "yunikorn.apache.org/schedulingPolicyParameters"
GANG_SIZE = "evenhand.io/gang-size"
"""On a placeholder: how many there are of its application, which get their places together."""
PLACEHOLDERS_MADE = "evenhand.io/placeholders-made"
"""On the pod that created an application: its placeholders were made, and are not made again."""
ALLOW_PREEMPTION = "yunikorn.apache.org/allow-preemption"
RELEASED_FOR = "evenhand.io/released-for"
DELIVERY = "evenhand.io/delivery"
JOB_KEY = "pod-group.scheduling.sigs.k8s.io"
JOB_MEMBERS = "pod-group.scheduling.sigs.k8s.io/min-available"
JOB_KEY_OWN = "evenhand.io/job"
JOB_MEMBERS_OWN = "evenhand.io/job-members"
PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"
CAN_PREEMPT = "quota.scheduling.koordinator.sh/can-preempt"
SOFT_EVICTION = "scheduling.koordinator.sh/soft-eviction"

NAMESPACE_QUOTA = "yunikorn.apache.org/namespace.quota"
NAMESPACE_MAX_CPU = "yunikorn.apache.org/namespace.max.cpu"
NAMESPACE_MAX_MEMORY = "yunikorn.apache.org/namespace.max.memory"
NAMESPACE_GUARANTEED = "yunikorn.apache.org/namespace.guaranteed"
NAMESPACE_MAX_APPS = "yunikorn.apache.org/namespace.maxApps"
PARENT_QUEUE = "yunikorn.apache.org/parentqueue"

TAG_NAMESPACE = "namespace"
TAG_QUOTA = "namespace.resourcequota"
TAG_GUARANTEED = "namespace.resourceguaranteed"
TAG_MAX_APPS = "namespace.resourcemaxapps"
TAG_PARENT_QUEUE = "namespace.parentqueue"
TAG_FORCE = "application.create.force"

TAG_POD_NAMESPACE = "kubernetes.io/meta/namespace"
TAG_POD_NAME = "kubernetes.io/meta/podName"
TAG_LABEL_PREFIX = "kubernetes.io/label/"
TAG_CREATION = "creationTime"
TAG_REQUIRED_NODE = "yunikorn.apache.org/requiredNode"
TAG_FOREIGN = "foreign"

ATTRIBUTE_HOSTNAME = "si.io/hostname"
ATTRIBUTE_RACK = "si.io/rackname"
RACK = "/rack-default"

VALUE_LENGTH_MAX = 63
"""Letters of a label's value, as the API server has it."""
_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", re.ASCII)


def is_value(text: str) -> bool:
    """Return whether a label may have this value, which is not empty."""
    return len(text) <= VALUE_LENGTH_MAX and _VALUE.fullmatch(text) is not None
