"""The names of pods, from the tags that a client sent with its asks."""

from collections.abc import Callable, Mapping
from typing import Final

from server.core.core import Core
from server.model.asks import Tags
from server.rpc.tags import decoded
from server.state.applications import Ask

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


def name_of(ask: Ask) -> str:
    """Return the name of an ask for users: the pod's name, else its key."""
    return pod_name(ask.tags) or ask.key


def names_now(core: Core) -> Callable[[str, str], str]:
    """Return a function from partition and key to the pod's name.

    The function returns "" if the core does not know the pod now.
    """

    def name(partition: str, key: str) -> str:
        state = core.state.partitions.get(partition)
        ask = None if state is None else state.asks.get(key)
        return "" if ask is None else pod_name(ask.tags)

    return name
