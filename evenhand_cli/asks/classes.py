"""Priorities of pods: from PriorityClasses of the file, from the system's own classes, or from the option `--priority`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evenhand_cli.asks.documents import Document
from evenhand_cli.asks.simulated import Options
from shim_client.embedded.admission import SYSTEM_CLASSES
from shim_client.translate.fields import BadObjectError
from shim_client.translate.priority import read_priority_class

POLICY = "PreemptLowerPriority"
UNKNOWN_DEFAULT = (
    "no priorityClassName, and the cluster's globalDefault is not known here; "
    "say it: --classes FILE or --priority N"
)
RESOLVED = ("priority", "priorityClassName", "preemptionPolicy")
"""Fields that the API server writes into a pod after it has looked up the pod's PriorityClass."""


@dataclass(slots=True)
class Classes:
    """The PriorityClasses of a file and the system's own classes, by name."""

    options: Options
    known: dict[str, Mapping[str, Any]] = field(
        default_factory=lambda: {
            name: {"metadata": {"name": name}, "value": value}
            for name, value in SYSTEM_CLASSES.items()
        }
    )

    def add(self, document: Document) -> None:
        """Add a PriorityClass. Raises Fault for a class without a name, or with a value that is not a whole number."""
        value = document.item.get("value", 0)
        try:
            name = read_priority_class(document.item).name
        except BadObjectError as bad:
            raise document.fault(f"PriorityClass: {bad}", "correct it") from bad
        if not name or type(value) is not int:
            raise document.fault("a PriorityClass needs a metadata.name and a whole value")
        self.known[name] = document.item

    def resolves(self, spec: Mapping[str, Any]) -> bool:
        """Return whether the pod's priority follows from the known classes.

        The priority follows if the pod's class is known, or if the pod names no class and there is a global default
        class.
        """
        name = spec.get("priorityClassName")
        if name:
            return name in self.known
        return any(one.get("globalDefault") for one in self.known.values())

    def otherwise(self, spec: Mapping[str, Any], pod: Document) -> dict[str, Any]:
        """Return priority, class and preemption policy of a pod whose priority does not follow from the known classes.

        The option `--priority` takes precedence over the priority that is written in the pod. If both priorities are
        missing, the priority is 0. Raises Fault if both priorities are missing and the pod names an unknown class.
        """
        name, written = spec.get("priorityClassName"), spec.get("priority")
        value = written if self.options.priority is None else self.options.priority
        if name and value is None:
            raise pod.fault(
                f"the file holds no PriorityClass `{name}`",
                f"add it: kubectl get priorityclass {name} -o yaml; or say the priority: --priority",
            )
        found = {"priority": value or 0, "preemptionPolicy": spec.get("preemptionPolicy") or POLICY}
        return {**found, "priorityClassName": name} if name else found

    def source(self, spec: Mapping[str, Any]) -> str:
        """Return where the pod's priority comes from.

        When the priority is only assumed, the text also says how to set another priority.
        """
        name = spec.get("priorityClassName")
        if self.resolves(spec):
            if name:
                return f"PriorityClass {name}"
            default = next(one for one, found in self.known.items() if found.get("globalDefault"))
            return f"PriorityClass {default}, the globalDefault of the file"
        if self.options.priority is not None:
            return "--priority"
        if spec.get("priority") is not None:
            return "written in the pod by the API server"
        return UNKNOWN_DEFAULT

    def allows_preemption(self, name: str) -> bool:
        """Return whether the class with this name lets its pods be preempted like other pods.

        The result is True for an unknown class. False means that pods of the class are evicted only if no other victims
        suffice.
        """
        found = self.known.get(name)
        return found is None or read_priority_class(found).allow_preemption
