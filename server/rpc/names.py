"""The names of a core's pods, from the tags that a client sent with its asks."""

from collections.abc import Callable

from server.core.core import Core
from server.rpc.pod_names import pod_name
from server.state.applications import Ask


def name_of(ask: Ask) -> str:
    """Return the name of an ask for users: the pod's name, else its key."""
    return pod_name(ask.tags) or ask.key


def names_now(core: Core) -> Callable[[str, str], str]:
    """Return a function from partition and key to the pod's name.

    The function returns "" if the core does not have the pod now.
    """

    def name(partition: str, key: str) -> str:
        state = core.state.partitions.get(partition)
        ask = None if state is None else state.asks.get(key)
        return "" if ask is None else pod_name(ask.tags)

    return name
