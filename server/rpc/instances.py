"""The processes of a resource manager: which one speaks for it, so that two with one id do not replace each other for ever.

The newer of two takes over and the older one ends (design 1.10). Where something restarts the older one, as Kubernetes
does with a pod's container, it would then be the newer one: so a process may send its name (the name of its pod, in
`buildInfo`), and one that was taken over waits, under that name, until its successor is gone.
"""

from collections.abc import Mapping
from typing import Final

from server.rpc.errors import another_instance
from server.rpc.limits import INSTANCES_ASIDE_MAX

BUILD_INFO_KEY: Final = "instance"
NAME_MAX: Final = 253
"""The longest name that is used, that of a pod; a longer name is cut."""


def instance_of(build_info: Mapping[str, str]) -> str:
    """Return the name of the process that registers, empty when it sends none."""
    return build_info.get(BUILD_INFO_KEY, "")[:NAME_MAX]


class Instances:
    """The name of the last process of each manager, and the names of earlier ones that were taken over."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        self._aside: dict[str, dict[str, None]] = {}

    def check(self, rm_id: str, instance: str, *, speaking: bool) -> None:
        """Check that a process may register. Raises CallError while the process that took over from it speaks."""
        last = self._last.get(rm_id, "")
        if speaking and instance != last and instance in self._aside.get(rm_id, ()):
            raise another_instance(rm_id, last)

    def forget(self, rm_id: str) -> None:
        """Forget a manager that is gone."""
        self._last.pop(rm_id, None)
        self._aside.pop(rm_id, None)

    def registered(self, rm_id: str, instance: str, *, speaking: bool) -> None:
        """Record that a process registered; ``speaking``: while the streams of another registration were open."""
        last, self._last[rm_id] = self._last.get(rm_id, ""), instance
        aside = self._aside.setdefault(rm_id, {})
        aside.pop(instance, None)
        if speaking and last and last != instance:
            aside[last] = None
            if len(aside) > INSTANCES_ASIDE_MAX:
                del aside[next(iter(aside))]
