"""The cluster of a run: its nodes, queues and callers, known to core, shim, hostile clients and judge."""

from typing import Final

RM: Final = "rm"
NODES: Final = {
    **{f"n{number}": {"vcore": 16_000} for number in range(4)},
    "probes": {"probe": 1_000_000},
}
"""Capacities. Probes alone fit on the last one and nowhere else, so that each of them fits at all times."""

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
"""

SHIM_TOKEN: Final = "faults-suite-shim-token"  # noqa: S105 - of a core on the loopback
OPERATOR_TOKEN: Final = "faults-suite-operator-token"  # noqa: S105
TOKENS: Final = f"""\
tokens:
  - {{token: {SHIM_TOKEN}, role: shim, name: shim}}
  - {{token: {OPERATOR_TOKEN}, role: operator, name: operator}}
"""


def metadata(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call that brings a token."""
    return (("authorization", f"Bearer {token}"),)
