"""The choice of the process that acts for a resource manager, so that two processes with one id do not replace each other for ever.

The newer of two processes takes over, and the older process ends (design 1.10). When the older process ends, Kubernetes restarts
its container. The restarted process would now be the newer process, and would take over again. A process may therefore send a
name, the name of its pod, in `buildInfo`. A named process that was replaced waits until its successor is gone.
"""

from collections.abc import Mapping
from typing import Final

from server.rpc.errors import another_instance
from server.rpc.limits import INSTANCES_ASIDE_MAX

BUILD_INFO_KEY: Final = "instance"
NAME_MAX: Final = 253
"""The largest number of characters in the name of a process. Names of pods have the same limit. A longer name is cut."""


def instance_of(build_info: Mapping[str, str]) -> str:
    """Return the name of the process that registers.

    Return "" if the process sends no name.
    """
    return build_info.get(BUILD_INFO_KEY, "")[:NAME_MAX]


class Instances:
    """The name of the last process of each manager, and the names of the earlier processes that it replaced."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        self._aside: dict[str, dict[str, None]] = {}

    def check(self, rm_id: str, instance: str, *, speaking: bool) -> None:
        """Raise CallError if the process ``instance`` was replaced and its successor has streams open.

        ``speaking`` says that streams of the manager are open.
        """
        last = self._last.get(rm_id, "")
        if speaking and instance != last and instance in self._aside.get(rm_id, ()):
            raise another_instance(rm_id, last)

    def forget(self, rm_id: str) -> None:
        """Forget a manager that is gone."""
        self._last.pop(rm_id, None)
        self._aside.pop(rm_id, None)

    def registered(self, rm_id: str, instance: str, *, speaking: bool) -> None:
        """Record that a process registered. ``speaking`` says that streams of another registration were open."""
        last, self._last[rm_id] = self._last.get(rm_id, ""), instance
        aside = self._aside.setdefault(rm_id, {})
        aside.pop(instance, None)
        if speaking and last and last != instance:
            aside[last] = None
            if len(aside) > INSTANCES_ASIDE_MAX:
                del aside[next(iter(aside))]
