"""The kinds of objects of an embedded cluster, and the names that users write for these kinds."""

from collections.abc import Mapping

from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.near import near_matches

SHORT: Mapping[str, tuple[str, ...]] = {
    "ConfigMap": ("cm",),
    "DaemonSet": ("ds",),
    "Deployment": ("deploy",),
    "Job": (),
    "Namespace": ("ns",),
    "Node": ("no",),
    "PersistentVolumeClaim": ("pvc",),
    "Pod": ("po",),
    "PodDisruptionBudget": ("pdb",),
    "PodGroup": (),
    "PriorityClass": ("pc",),
    "ReplicaSet": ("rs",),
    "StatefulSet": ("sts",),
}
"""The short names of each kind, as in kubectl."""


def plural(kind: str) -> str:
    """Return the plural of a kind in lower case: `pods`, `priorityclasses`."""
    name = kind.lower()
    return f"{name}es" if name.endswith("s") else f"{name}s"


NAMES = {
    name: kind for kind, short in SHORT.items() for name in (kind.lower(), plural(kind), *short)
}


def kind_of(word: str) -> str:
    """Return the kind that a word names. The word is the kind, its plural or its short name, in upper or lower case.

    Raises Fault if there is no such kind.
    """
    kind = NAMES.get(word.lower())
    if kind is None:
        names = sorted(map(plural, SHORT))
        raise Fault(
            f"an embedded cluster has no kind `{word}`",
            where="argument KIND",
            advice=near_matches(word.lower(), NAMES) or f"there are {', '.join(names)}",
            code=ExitCode.USAGE,
        )
    return kind


def target_of(words: list[str]) -> tuple[str, list[str]]:
    """Return the kind and the names that `KIND NAME...` or `KIND/NAME...` mean.

    The list has at least one word. Raises Fault if there is no such kind, or if the words name several kinds.
    """
    if words and all("/" in word for word in words):
        pairs = [word.split("/", 1) for word in words]
        kinds = {kind_of(kind) for kind, _ in pairs}
        if len(kinds) > 1:
            raise Fault(
                "the names are of several kinds",
                where=" ".join(words),
                advice="give a command for each kind",
                code=ExitCode.USAGE,
            )
        return kinds.pop(), [name for _, name in pairs]
    kind, *names = words
    return kind_of(kind), names
