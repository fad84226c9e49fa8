"""The evidence of a run on Kubernetes, in addition to that of every run."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.faults.evidence import Evidence


class Waiting(NamedTuple):
    """A pod that waits at the end: the cause, the text of its condition, and the core's explanation."""

    name: str
    lacks: str
    told: str
    explained: str


@dataclass
class ClusterEvidence:
    """The evidence of a run on Kubernetes. The journal of `run` also has the shim's requests and the cluster's changes."""

    run: Evidence
    shim_exits: list[tuple[str, int]] = field(default_factory=list)
    """How each shim was ended, and its exit code."""
    core_says: dict[str, str] = field(default_factory=dict)
    """The node of each pod by uid at the end, as the core has it."""
    api_says: dict[str, str] = field(default_factory=dict)
    """The node of each pod by uid at the end, as the API server has it."""
    waiting: list[Waiting] = field(default_factory=list)
    configuration: str = ""
    """The configuration in force at the end."""
