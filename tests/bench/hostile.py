"""Loads of one tenant that could delay others: many label keys, asks for single hosts, many sizes, long configurations."""

from collections.abc import Callable, Iterator

from evenhand.v1 import config_pb2
from si.v1 import si_pb2 as si
from tests.bench import messages
from tests.bench.beside import Readers
from tests.bench.script import Script, Step
from tests.bench.workloads import Workload, application, ask_key, node

HOSTNAME = "kubernetes.io/hostname"
LABELS = {f"label-{at}": f"value-{at}" for at in range(20)}
"""The labels of each node besides its hostname."""
TENANT, OTHER = 0, 1
"""Positions of asks whose applications are in two different leaves."""
UNKNOWN_KEYS = 30_000
QUEUES = 10_000

Pin = Callable[[str], si.NodeConstraints]


def label_keys(workload: Workload, keys: int) -> Script:
    """Return a script: one message of asks, each with a different unknown label key, then another tenant's ask."""
    asks = [_ask(workload, TENANT, f"tenant-{at:05}") for at in range(keys)]
    for at, ask in enumerate(asks):
        ask.constraints.nodeSelector[f"key-{at}"] = "value"
    return _before_another_tenant(workload, asks)


def sizes(workload: Workload, many: int) -> Script:
    """Return a script: one message of asks, each of a different size that fits no node, then another tenant's ask."""
    asks = [_ask(workload, TENANT, f"tenant-{at:05}") for at in range(many)]
    for at, ask in enumerate(asks):
        ask.resourcePerAlloc.CopyFrom(messages.as_resource({"vcore": 10**9 + at}))
    return _before_another_tenant(workload, asks)


def sizes_in_turn(workload: Workload, many: int, rounds: int) -> Script:
    """Return a script of several messages with asks of new sizes that fit no node, each followed by another tenant's ask."""
    standing, steps = _standing(workload), list[Step]()
    for turn in range(rounds):
        asks = [_ask(workload, TENANT, f"tenant-{turn}-{at:05}") for at in range(many)]
        for at, ask in enumerate(asks, many * turn):
            ask.resourcePerAlloc.CopyFrom(messages.as_resource({"vcore": 10**9 + at}))
        steps.append(_with_another(workload, asks, f"other-{turn}"))
    return Script([*standing, *steps], len(standing))


def pinned(workload: Workload, pin: Pin) -> Script:
    """Return a script of asks that each name their own host, one node after the other, until the last placement."""
    asks = [_ask(workload, at, ask_key(at)) for at in range(workload.asks)]
    for at, ask in enumerate(asks):
        ask.constraints.CopyFrom(pin(node(workload, at % workload.nodes).node_id))
    standing = _standing(workload)
    placed = messages.placed(messages.packed(asks), workload.asks)
    return Script([*standing, placed], len(standing))


def by_selector(host: str) -> si.NodeConstraints:
    """Return the constraints of a pod with a node selector."""
    return si.NodeConstraints(nodeSelector={HOSTNAME: host})


def by_affinity(host: str) -> si.NodeConstraints:
    """Return the constraints of a pod with node affinity, such as one with a local volume."""
    wanted = si.NodeSelectorRequirement(key=HOSTNAME, operator="In", values=[host])
    return si.NodeConstraints(requiredTerms=[si.NodeSelectorTerm(matchExpressions=[wanted])])


def by_name(host: str) -> si.NodeConstraints:
    """Return the constraints of a DaemonSet's pod."""
    wanted = si.NodeSelectorRequirement(key="metadata.name", operator="In", values=[host])
    return si.NodeConstraints(requiredTerms=[si.NodeSelectorTerm(matchFields=[wanted])])


def texts() -> Iterator[Readers]:
    """Yield a caller for each kind of long configuration; each caller repeatedly sends its text."""
    unknown = ", ".join(f"k{at}: 1" for at in range(UNKNOWN_KEYS))
    yield _handing_over(f"a text of {UNKNOWN_KEYS:,} unknown keys", f"{{{unknown}}}\n")
    lines = ["partitions:", "- name: default", "  queues:", "  - name: root", "    queues:"]
    lines += [f"    - {{name: q{at}}}" for at in range(QUEUES)]
    yield _handing_over(f"a text of {QUEUES:,} queues", "\n".join(lines) + "\n")


def _handing_over(name: str, text: str) -> Readers:
    request = config_pb2.ValidateRequest(yaml=text).SerializeToString()
    return Readers(name, "/evenhand.v1.ConfigurationService/Validate", 1, request)


def _before_another_tenant(workload: Workload, asks: list[si.Allocation]) -> Script:
    standing = _standing(workload)
    return Script([*standing, _with_another(workload, asks, "other")], len(standing))


def _with_another(workload: Workload, asks: list[si.Allocation], key: str) -> Step:
    """Return the step that sends these asks, then another tenant's ask, and waits until that ask is placed."""
    (first,) = messages.packed(asks, len(asks))
    (second,) = messages.packed([_ask(workload, OTHER, key)])
    return messages.placed([first, second], 1)


def _ask(workload: Workload, at: int, key: str) -> si.Allocation:
    return si.Allocation(
        allocationKey=key,
        applicationID=application(workload, at)[0],
        partitionName="default",
        resourcePerAlloc=messages.as_resource({"vcore": 1, "memory": 1 << 20}),
    )


def _standing(workload: Workload) -> list[Step]:
    return messages.standing(workload, lambda name: {HOSTNAME: name, **LABELS})
