"""Random messages of `si.v1`, and bytes that are almost messages; a seed or hypothesis determines all of them."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from server.rpc.wire_pieces import record, varint
from si.v1 import si_pb2 as si

names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
keys = st.sampled_from(["", "k1", "k2", "a-key"]) | names
numbers = st.sampled_from([0, 1, -1, 5, 1 << 40, (1 << 62) - 1, 1 << 62, -(1 << 63)]) | st.integers(
    -(1 << 63), (1 << 63) - 1
)
small = st.integers(-3, 3) | st.integers(-(1 << 31), (1 << 31) - 1)
tag_names = st.sampled_from(
    ["creationTime", "yunikorn.apache.org/requiredNode", "foreign", "kubernetes.io/label/a"]
)
tag_values = st.sampled_from(["1700000000", "", "static", "n1", "x" * 200, "١٢٣", "-5"]) | names
tags = st.dictionaries(tag_names | names, tag_values, max_size=5)


@st.composite
def resources(draw: st.DrawFn) -> si.Resource:
    """Draw quantities, valid or not."""
    found = draw(
        st.dictionaries(st.sampled_from(["vcore", "memory", "pods", ""]), numbers, max_size=4)
    )
    return si.Resource(resources={name: si.Quantity(value=value) for name, value in found.items()})


@st.composite
def requirements(draw: st.DrawFn) -> si.NodeSelectorRequirement:
    """Draw a requirement, valid or not."""
    return si.NodeSelectorRequirement(
        key=draw(st.sampled_from(["zone", "metadata.name", ""])),
        operator=draw(st.sampled_from(["In", "NotIn", "Exists", "Gt", "Lt", "in", ""])),
        values=draw(st.lists(st.sampled_from(["a", "7", "-7", ""]), max_size=2)),
    )


@st.composite
def constraints(draw: st.DrawFn) -> si.NodeConstraints:
    """Draw node constraints, valid or not."""
    term = st.builds(
        si.NodeSelectorTerm,
        matchExpressions=st.lists(requirements(), max_size=2),
        matchFields=st.lists(requirements(), max_size=1),
    )
    toleration = st.builds(
        si.Toleration,
        key=st.sampled_from(["", "gpu"]),
        operator=st.sampled_from(["", "Exists", "Equal", "No"]),
        effect=st.sampled_from(["", "NoSchedule", "Never"]),
    )
    port = st.builds(si.HostPort, port=small, protocol=st.sampled_from(["", "UDP", "udp"]))
    return si.NodeConstraints(
        nodeSelector=draw(st.dictionaries(names, names, max_size=2)),
        requiredTerms=draw(st.lists(term, max_size=2)),
        tolerations=draw(st.lists(toleration, max_size=2)),
        nodeName=draw(st.sampled_from(["", "n1"])),
        hostPorts=draw(st.lists(port, max_size=1)),
        allowedNodes=draw(st.lists(st.sampled_from(["n1", "n2"]), max_size=2)),
    )


@st.composite
def preferences(draw: st.DrawFn) -> si.NodePreferences:
    """Draw node preferences, valid or not."""
    weights = st.sampled_from([0, 1, -100, 1_000_000, -1_000_001])
    term = st.builds(
        si.NodeSelectorTerm,
        matchExpressions=st.lists(requirements(), max_size=1),
        matchFields=st.lists(requirements(), max_size=1),
    )
    group = st.builds(
        si.GroupPreference,
        group=st.sampled_from(["web", ""]),
        topologyKey=st.sampled_from(["zone", "zone", ""]),
        weight=weights,
    )
    return si.NodePreferences(
        terms=draw(st.lists(st.builds(si.PreferredTerm, weight=weights, term=term), max_size=2)),
        groups=draw(st.lists(group, max_size=2)),
    )


def _own(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the fields that Evenhand adds, which asks and allocations have in common."""
    return {
        "jobKey": draw(st.sampled_from(["", "job"])),
        "jobMembers": draw(small),
        "protection": draw(st.sampled_from([0, 1, 2, 3, 4, 5, 99])),
        "disruptionGroups": draw(st.lists(names, max_size=2)),
        "startedAt": draw(numbers),
        "graceSeconds": draw(small),
        "rmCheck": draw(st.booleans()),
        "answersPlanChecks": draw(st.booleans()),
        "preferences": draw(st.none() | preferences()),
        "jobTrigger": draw(st.sampled_from([0, 1, 2, 3, 99])),
    }


@st.composite
def allocations(draw: st.DrawFn) -> si.Allocation:
    """Draw an ask, or an existing or foreign allocation, in the newest version of the interface."""
    message = si.Allocation(
        allocationKey=draw(keys),
        allocationTags=draw(tags),
        UUID=draw(st.sampled_from(["", "u"])),
        priority=draw(small),
        nodeID=draw(st.sampled_from(["", "", "n1"])),
        applicationID=draw(keys),
        partitionName=draw(st.sampled_from(["", "default", "GPU"])),
        taskGroupName=draw(st.sampled_from(["", "tg"])),
        placeholder=draw(st.booleans()),
        originator=draw(st.booleans()),
        resourcePerAlloc=draw(st.none() | resources()),
        constraints=draw(st.none() | constraints()),
        **(_own(draw) if draw(st.booleans()) else {}),
    )
    if draw(st.booleans()):
        message.preemptionPolicy.allowPreemptSelf = draw(st.booleans())
        message.preemptionPolicy.allowPreemptOther = draw(st.booleans())
    if draw(st.integers(0, 4)) == 0:
        mark = draw(st.builds(si.ReleasingMark, terminationType=st.sampled_from([0, 3, 77])))
        message.releasing.CopyFrom(mark)
        message.releasing.releasedFor = draw(keys)
    return message


@st.composite
def asks(draw: st.DrawFn) -> si.AllocationAsk:
    """Draw an ask in the older version of the interface."""
    message = si.AllocationAsk(
        allocationKey=draw(keys),
        applicationID=draw(keys),
        partitionName=draw(st.sampled_from(["", "default"])),
        resourceAsk=draw(st.none() | resources()),
        maxAllocations=draw(st.sampled_from([0, 1, 1, 2, -1])),
        priority=draw(small),
        executionTimeoutMilliSeconds=draw(st.sampled_from([0, 0, 5_000]) | numbers),
        tags=draw(tags),
        taskGroupName=draw(names),
        placeholder=draw(st.booleans()),
        Originator=draw(st.booleans()),
        constraints=draw(st.none() | constraints()),
        **(_own(draw) if draw(st.booleans()) else {}),
    )
    form = draw(st.integers(0, 3))
    if form == 1:
        message.preemptionPolicy.allowPreemption = draw(st.booleans())
        message.preemptionPolicy.schedulerPreemption = draw(
            st.sampled_from(["", "Never", "PreemptLowerPriority"])
        )
    elif form == 2:
        published = (
            varint(8)
            + varint(draw(st.integers(0, 1)))
            + varint(16)
            + varint(draw(st.integers(0, 2)))
        )
        message.preemptionPolicy.MergeFromString(published)
    return message


releases = st.builds(
    si.AllocationRelease,
    partitionName=st.sampled_from(["", "default"]),
    applicationID=keys,
    UUID=st.sampled_from(["", "u"]),
    terminationType=st.sampled_from([0, 1, 2, 3, 5, 6, -1]),
    message=names,
    allocationKey=keys,
)
ask_releases = st.builds(
    si.AllocationAskRelease,
    applicationID=keys,
    allocationKey=keys,
    terminationType=st.sampled_from([1, 2, 9]),
)
vetoes = st.builds(si.VictimVeto, decisionID=names, allocationKey=keys, reason=names)
budgets = st.builds(
    si.DisruptionBudget,
    name=keys,
    allowed=st.sampled_from([0, 1, 7, -1, 2**31 - 1]),
    removed=st.booleans(),
)
plan_check_answers = st.builds(
    si.PlanCheckAnswer,
    checkID=names,
    partitionName=st.sampled_from(["", "default", "GPU"]),
    fits=st.booleans(),
    refused=st.lists(st.builds(si.RefusedPlacement, allocationKey=keys, reason=names), max_size=2),
)
allocation_requests = st.builds(
    si.AllocationRequest,
    asks=st.lists(asks(), max_size=3),
    releases=st.none()
    | st.builds(
        si.AllocationReleasesRequest,
        allocationsToRelease=st.lists(releases, max_size=2),
        allocationAsksToRelease=st.lists(ask_releases, max_size=2),
    ),
    rmID=keys,
    allocations=st.lists(allocations(), max_size=3),
    vetoes=st.lists(vetoes, max_size=2),
    disruptionBudgets=st.lists(budgets, max_size=2),
    planCheckAnswers=st.lists(plan_check_answers, max_size=2),
)


def fields(data: bytes) -> list[bytes]:
    """Return the fields of a well-formed message, each with its header."""
    found, at = [], 0
    while at < len(data):
        start = at
        tag, at = _number(data, at)
        kind = tag & 7
        if kind == 0:
            _, at = _number(data, at)
        elif kind == 2:
            size, at = _number(data, at)
            at += size
        else:
            at += 8 if kind == 1 else 4
        found.append(data[start:at])
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at


def shaken(data: bytes, chance: random.Random, depth: int = 0) -> bytes:
    """Return an equivalent form of the message: fields moved, repeated, split, with unknown fields between them.

    Repetitions change the meaning as protobuf defines it (the last scalar wins, messages are merged).
    """
    parts = fields(data)
    for _ in range(chance.randrange(3)):
        if parts:
            parts.insert(chance.randrange(len(parts) + 1), chance.choice(parts))
    if chance.random() < 0.3:
        parts.insert(chance.randrange(len(parts) + 1), record(chance.randrange(200, 300), b"?"))
    if chance.random() < 0.5:
        chance.shuffle(parts)
    return b"".join(_inside(part, chance, depth) for part in parts)


def _inside(part: bytes, chance: random.Random, depth: int) -> bytes:
    """Rewrite the bytes as `shaken` does when they can be read as a nested message."""
    tag, at = _number(part, 0)
    if tag & 7 != 2 or depth > 2 or chance.random() < 0.5:
        return part
    _, at = _number(part, at)
    try:
        body = shaken(part[at:], chance, depth + 1)
    except IndexError:
        return part
    return record(tag >> 3, body)


def broken(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes with one to three random damages."""
    damaged = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        _DAMAGES[chance.randrange(len(_DAMAGES))](damaged, chance)
    return bytes(damaged)


def bent(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes with one bit changed, which usually gives a message with a different field or number."""
    damaged = bytearray(data)
    if damaged:
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(4)
    return bytes(damaged)


def _flip(data: bytearray, chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _overwrite(data: bytearray, chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))


def _cut(data: bytearray, chance: random.Random) -> None:
    if data:
        start = chance.randrange(len(data))
        del data[start : start + chance.randrange(1, 9)]


def _repeat(data: bytearray, chance: random.Random) -> None:
    if data:
        start = chance.randrange(len(data))
        data[start:start] = data[start : start + chance.randrange(1, 17)]


def _insert(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data) + 1)
    data[start:start] = chance.randbytes(chance.randrange(1, 5))


_DAMAGES: Sequence[Callable[[bytearray, random.Random], None]] = (
    _flip,
    _overwrite,
    _cut,
    _repeat,
    _insert,
)
