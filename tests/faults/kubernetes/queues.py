"""The queues of a run on Kubernetes, and how the quota of one of them is changed."""

from typing import Final

TEMPLATE: Final = """\
partitions:
  - name: default
    preemption: {{quotapreemptionenabled: true, backoff: 1s, expiry: 20s}}
    queues:
      - name: root
        submitacl: '*'
        queues:
          - {{name: high, resources: {{guaranteed: {{vcore: 40}}}}, properties: {{preemption.delay: 1s}}}}
          - name: low
            resources: {{max: {{vcore: {cores}}}}}
            properties: {{quota.preemption.delay: 1s}}
          - {{name: probe}}
          - {{name: tiny, resources: {{max: {{vcore: 1}}}}}}
"""
CORES: Final = 64
"""The quota of `low` at the start and at the end, which is the capacity of all nodes."""
LOWERED: Final = (16, 24, 48)


def queues(cores: int) -> str:
    """Return the configuration that gives `low` this number of cores."""
    return TEMPLATE.format(cores=cores)
