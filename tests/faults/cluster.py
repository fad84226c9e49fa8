"""The cluster of a run: its nodes, queues and callers, known to core, shim, hostile clients and judge."""

from dataclasses import dataclass
from typing import Final

Nodes = dict[str, dict[str, int]]
PROBES: Final[Nodes] = {"probes": {"probe": 1_000_000}}
"""A node on which only probes fit, so that each probe fits at any time."""

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
    """Return a different configuration for each number, with a limit above the cluster's capacity."""
    return QUEUES.replace(
        "{name: low}", f"{{name: low, resources: {{max: {{vcore: {1_000 + number}}}}}}}"
    )


@dataclass(frozen=True)
class Manager:
    """A resource manager: its shim's token, its nodes in a partition, and the queues that it uses."""

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
"""A manager that asks only for probes, without the proxy, so that faults of the first shim and its network do not
affect it."""
MANAGERS: Final = {one.rm_id: one for one in (FIRST, SECOND)}


def metadata(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that carries a token."""
    return (("authorization", f"Bearer {token}"),)
