"""The cluster of a run: its nodes, queues and callers, known to core, shim, hostile clients and judge."""

from dataclasses import dataclass
from typing import Final

Nodes = dict[str, dict[str, int]]
PROBES: Final[Nodes] = {"probes": {"probe": 1_000_000}}
"""A node that probes alone fit on, so that each of them fits at all times."""

QUEUES: Final = """\
partitions:
  - name: default
    preemption: {backoff: 1s, expiry: 20s}
    queues:
      - name: root
        submitacl: '*'
        queues:
          - {name: high, resources: {guaranteed: {vcore: 40}}, properties: {preemption.delay: 1s}}
          - {name: low}
          - {name: probe}
  - name: second
    queues:
      - name: root
        submitacl: '*'
        queues:
          - {name: probe}
"""

SHIM_TOKEN: Final = "faults-suite-shim-token"  # noqa: S105 - of a core on the loopback
SECOND_TOKEN: Final = "faults-suite-second-shim-token"  # noqa: S105
OPERATOR_TOKEN: Final = "faults-suite-operator-token"  # noqa: S105
TOKENS: Final = f"""\
tokens:
  - {{token: {SHIM_TOKEN}, role: shim, name: shim}}
  - {{token: {SECOND_TOKEN}, role: shim, name: second-shim}}
  - {{token: {OPERATOR_TOKEN}, role: operator, name: operator}}
"""


def changed_queues(number: int) -> str:
    """Return a configuration of its own for each number, with a bound that is above what the cluster has."""
    return QUEUES.replace(
        "{name: low}", f"{{name: low, resources: {{max: {{vcore: {1_000 + number}}}}}}}"
    )


@dataclass(frozen=True)
class Manager:
    """A resource manager: its shim's token, its nodes in a partition, the queues that it asks in."""

    rm_id: str
    token: str
    partition: str
    nodes: Nodes
    queues: tuple[str, ...]


FIRST: Final = Manager(
    "rm",
    SHIM_TOKEN,
    "default",
    {**{f"n{number}": {"vcore": 16_000} for number in range(4)}, **PROBES},
    ("high", "low", "probe"),
)
SECOND: Final = Manager("rm2", SECOND_TOKEN, "second", PROBES, ("probe",))
"""Asks for probes alone, past the proxy: faults of the first shim and of its way do not concern it."""
MANAGERS: Final = {one.rm_id: one for one in (FIRST, SECOND)}


def metadata(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call that brings a token."""
    return (("authorization", f"Bearer {token}"),)
