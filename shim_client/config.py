"""The shim's settings: flat keys and texts, each checked against the limits of its setting.

The keys are the keys of the ConfigMaps `yunikorn-defaults` and `yunikorn-configs`. The value of one key is the queue
tree as text. This key is the name of the policy group with the ending `.yaml`, usually `queues.yaml`. An invalid value
of a setting is an error. The time to wait for volumes is the only exception: if this time is invalid, a warning is
recorded, and the default is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shim_client.quantity import counted, duration_ms

SCHEDULER_NAME_KEY = "service.schedulerName"
CLUSTER_ID_KEY = "service.clusterId"
POLICY_GROUP_KEY = "service.policyGroup"
POD_ALLOW_PREEMPTION_KEY = "service.podAllowPreemption"
TRUST_USER_KEY = "service.trustUserInfo"
UNIQUE_APP_ID_KEY = "admissionController.filtering.generateUniqueAppId"
HOT_REFRESH_KEY = "service.enableConfigHotRefresh"
GATHERING_KEY = "service.jobGathering"
VOLUME_BIND_KEY = "service.volumeBindTimeout"
PLACEHOLDER_IMAGE_KEY = "service.placeholderImage"
PLACEHOLDER_USER_KEY = "service.placeholderRunAsUser"
PLACEHOLDER_GROUP_KEY = "service.placeholderRunAsGroup"
PLACEHOLDER_FS_GROUP_KEY = "service.placeholderFsGroup"
NO_GANGS_KEY = "service.disableGangScheduling"
QPS_KEY = "kubernetes.qps"
BURST_KEY = "kubernetes.burst"

NAME_LENGTH_MAX = 253
"""Maximum length of the scheduler name, the cluster id and the policy group. Kubernetes object names have the same limit."""
SCHEDULER_NAMES_MAX = 16
IMAGE_LENGTH_MAX = 1024
PLACEHOLDER_IMAGE = "registry.k8s.io/pause:3.10"
"""Default image of a placeholder. A container with this image does nothing, and every node has the image."""
ACCOUNT_MAX = 2**31 - 1
"""Largest id of a user or group."""
RATE_MAX = 100_000
"""Highest rate of requests to the API server that can be set, in requests per second."""
GATHERING_SECONDS_MAX = 3600
"""Longest time, in seconds, to wait for the members of a job of unknown size."""
VOLUME_BIND_MS = 120_000
"""Default of the longest time, in milliseconds, that a pod waits on its node for the volumes of its claims."""
VOLUME_BIND_MS_MAX = 24 * 3_600_000
CONFIG_BYTES_MAX = 1024 * 1024
"""Maximum number of bytes of a queue configuration, which is the maximum size of a ConfigMap."""


class BadSettingError(ValueError):
    """A setting that cannot be used.

    The message names the setting, the reason, and the values that are accepted.
    """


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the shim that an operator can change."""

    scheduler_names: tuple[str, ...] = ("evenhand",)
    cluster_id: str = "evenhand"
    policy_group: str = "queues"
    generate_unique_app_id: bool = False
    honour_pod_annotation: bool = True
    """Whether an annotation on a pod can opt the pod out of preemption.

    With `service.podAllowPreemption: ignore`, only an annotation on the PriorityClass can opt pods out.
    """
    trust_user_info: bool = True
    """Whether the shim trusts, on every pod, the annotation that names the pod's user.

    With `service.trustUserInfo: enforced`, the shim reports the user in the annotation only if an admission policy
    guards the annotation.
    """
    gangs: bool = True
    """Whether task groups get placeholders."""
    placeholder_image: str = PLACEHOLDER_IMAGE
    placeholder_run_as_user: int | None = None
    placeholder_run_as_group: int | None = None
    placeholder_fs_group: int | None = None
    queues: str = ""
    """Text of queues.yaml. With an empty text, the core keeps its present configuration."""
    hot_refresh: bool = True
    """Whether a changed ConfigMap takes effect at once."""
    gathering_s: int = 2
    """Seconds without a new member after which a job of unknown size is complete (`service.jobGathering`, J1)."""
    volume_bind_ms: int = VOLUME_BIND_MS
    """The setting `service.volumeBindTimeout` in milliseconds: how long a placed pod waits for its volumes.

    After this time the placement is given back to the core.
    """
    qps: int = 1000
    burst: int = 1000
    namespace: str = ""
    """Namespace whose ConfigMaps the shim watches. If this text is empty, the shim watches no ConfigMap."""


def settings_from(flat: Mapping[str, str]) -> Settings:
    """Return the settings of a ConfigMap's data. Raises BadSettingError if a setting has an invalid value."""
    group = _name(flat, POLICY_GROUP_KEY, "queues")
    queues = flat.get(f"{group}.yaml", "")
    if len(queues.encode()) > CONFIG_BYTES_MAX:
        raise BadSettingError(f"{group}.yaml: more than {CONFIG_BYTES_MAX} bytes")
    return Settings(
        scheduler_names=_names(flat),
        cluster_id=_name(flat, CLUSTER_ID_KEY, "evenhand"),
        policy_group=group,
        generate_unique_app_id=_choice(flat, UNIQUE_APP_ID_KEY, "false", "true") == "true",
        honour_pod_annotation=(
            _choice(flat, POD_ALLOW_PREEMPTION_KEY, "honour", "ignore") == "honour"
        ),
        trust_user_info=_choice(flat, TRUST_USER_KEY, "always", "enforced") == "always",
        gangs=_choice(flat, NO_GANGS_KEY, "false", "true") == "false",
        placeholder_image=_image(flat),
        placeholder_run_as_user=_account(flat, PLACEHOLDER_USER_KEY),
        placeholder_run_as_group=_account(flat, PLACEHOLDER_GROUP_KEY),
        placeholder_fs_group=_account(flat, PLACEHOLDER_FS_GROUP_KEY),
        queues=queues,
        hot_refresh=_choice(flat, HOT_REFRESH_KEY, "true", "false") == "true",
        gathering_s=_seconds(flat, GATHERING_KEY, "2s"),
        volume_bind_ms=VOLUME_BIND_MS if (found := _volume_bind_ms(flat)) is None else found,
        qps=_rate(flat, QPS_KEY),
        burst=_rate(flat, BURST_KEY),
    )


def unclear_settings(flat: Mapping[str, str]) -> list[str]:
    """Return one line for each value that cannot be used. The default of the setting is used instead."""
    if _volume_bind_ms(flat) is not None:
        return []
    written = flat[VOLUME_BIND_KEY].strip()[:40]
    return [
        f"{VOLUME_BIND_KEY}: {written!r} is no duration of 0 to 24h, such as 90s or 10m; "
        f"{VOLUME_BIND_MS // 60_000}m counts"
    ]


def _volume_bind_ms(flat: Mapping[str, str]) -> int | None:
    """Return the time to wait for volumes in milliseconds; None for a value that cannot be used."""
    if VOLUME_BIND_KEY not in flat:
        return VOLUME_BIND_MS
    length = duration_ms(flat[VOLUME_BIND_KEY].strip())
    return None if length is None or length > VOLUME_BIND_MS_MAX else length


def _image(flat: Mapping[str, str]) -> str:
    image = flat.get(PLACEHOLDER_IMAGE_KEY, PLACEHOLDER_IMAGE).strip()
    if not 1 <= len(image) <= IMAGE_LENGTH_MAX or not image.isprintable() or " " in image:
        raise BadSettingError(f"{PLACEHOLDER_IMAGE_KEY}: {image[:40]!r} is no name of an image")
    return image


def _account(flat: Mapping[str, str], key: str) -> int | None:
    """Return the id of a user or group.

    Return None for an empty text, and for -1, which is the published default.
    """
    written = flat.get(key, "").strip()
    if written in ("", "-1"):
        return None
    account = counted(written, (0, ACCOUNT_MAX))
    if account is None:
        raise BadSettingError(
            f"{key}: {written[:40]!r} is not a number of 0 to {ACCOUNT_MAX}, or -1"
        )
    return account


def _rate(flat: Mapping[str, str], key: str) -> int:
    written = flat.get(key, "1000").strip()
    rate = counted(written, (1, RATE_MAX))
    if rate is None:
        raise BadSettingError(f"{key}: {written[:40]!r} is not a whole number of 1 to {RATE_MAX}")
    return rate


def _seconds(flat: Mapping[str, str], key: str, default: str) -> int:
    """Return the seconds of a duration that is written with its unit: `90s`, `2m`."""
    written = flat.get(key, default).strip()
    number, unit = written[:-1], written[-1:]
    length = {"s": 1, "m": 60}.get(unit, 0)
    count = counted(number, (0, GATHERING_SECONDS_MAX // length)) if length else None
    if count is None:
        raise BadSettingError(
            f"{key}: {written[:40]!r} is no duration of 0s to {GATHERING_SECONDS_MAX}s, such as 2s or 1m"
        )
    return count * length


def _names(flat: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(
        name
        for part in flat.get(SCHEDULER_NAME_KEY, "evenhand").split(",")
        if (name := part.strip())
    )
    if not 1 <= len(names) <= SCHEDULER_NAMES_MAX:
        raise BadSettingError(
            f"{SCHEDULER_NAME_KEY}: give 1 to {SCHEDULER_NAMES_MAX} names, separated by commas"
        )
    return tuple(_checked(SCHEDULER_NAME_KEY, name) for name in names)


def _name(flat: Mapping[str, str], key: str, default: str) -> str:
    return _checked(key, flat.get(key, default).strip())


def _checked(key: str, name: str) -> str:
    if not 1 <= len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise BadSettingError(
            f"{key}: {name[:40]!r} is not a name of 1 to {NAME_LENGTH_MAX} letters"
        )
    return name


def _choice(flat: Mapping[str, str], key: str, default: str, other: str) -> str:
    value = flat.get(key, default)
    if value not in (default, other):
        raise BadSettingError(f"{key}: {value[:40]!r} is neither {default!r} nor {other!r}")
    return value
