"""Pod names, read from the encoded tags of a pod. No access to the core is needed."""

from collections.abc import Mapping
from typing import Final

from server.model.asks import Tags
from server.rpc.tags import decoded

_NAMESPACE: Final = "kubernetes.io/meta/namespace"
_NAME: Final = "kubernetes.io/meta/podName"


def pod_name(tags: Tags) -> str:
    """Return namespace and name of the pod from its encoded tags.

    Return "" if the tags have no name.
    """
    return name_in(decoded(tags)) if tags else ""


def name_in(known: Mapping[str, str]) -> str:
    """Return namespace and name of the pod from decoded tags.

    Return "" if the tags have no name.
    """
    name = known.get(_NAME, "")
    return f"{known.get(_NAMESPACE, 'default')}/{name}" if name else ""
