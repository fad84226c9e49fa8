"""Names of pods: what people call an ask, as the tags say that its client sent with it."""

from collections.abc import Callable, Mapping
from typing import Final

from server.books.applications import Ask
from server.core.core import Core
from server.model.asks import Tags
from server.rpc.tags import decoded

_NAMESPACE: Final = "kubernetes.io/meta/namespace"
_NAME: Final = "kubernetes.io/meta/podName"


def pod_name(tags: Tags) -> str:
    """Return namespace and name of the pod, as its tags tell; "" when they do not."""
    return name_in(decoded(tags)) if tags else ""


def name_in(known: Mapping[str, str]) -> str:
    """Return namespace and name of the pod from decoded tags; "" when they do not tell."""
    name = known.get(_NAME, "")
    return f"{known.get(_NAMESPACE, 'default')}/{name}" if name else ""


def name_of(ask: Ask) -> str:
    """Return what people call an ask: the pod's name, else its key."""
    return pod_name(ask.tags) or ask.key


def names_now(core: Core) -> Callable[[str, str], str]:
    """Return a function that gives the name of a pod by partition and key while the core knows it, else ""."""

    def name(partition: str, key: str) -> str:
        books = core.state.partitions.get(partition)
        ask = None if books is None else books.asks.get(key)
        return "" if ask is None else pod_name(ask.tags)

    return name
