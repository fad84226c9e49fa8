"""The encoder of decisions into wire bytes.

Each decision becomes a *piece*: a response that has only the object of this decision.

Protobuf merges messages whose bytes are joined. Pieces that are joined in any order are therefore one response. The pieces of
placements and releases are joined from cached parts. Placements are by far the most frequent, and a quota run has tens of thousands
of releases. All other pieces come from the generated classes (`translate.answers`).
"""

from collections.abc import Iterable
from operator import itemgetter
from typing import Final

from server.model.asks import AskSpec, Generation
from server.model.decisions import Placed, Released
from server.rpc.limits import PIECES_MAX
from server.rpc.tags import as_allocation_tags
from server.rpc.translate import answers
from server.rpc.wire_pieces import LENGTHS, length, text
from si.v1 import si_pb2

_NEW: Final = b"\x0a"
"""The header of `AllocationResponse.new`."""
_RELEASED: Final = b"\x12"
"""The header of `AllocationResponse.released`."""
_KEY: Final = b"\x0a"
_UUID: Final = b"\x1a"
_NODE: Final = 8
_APPLICATION: Final = 9
_RELEASED_UUID: Final = b"\x1a"
_RELEASED_KEY: Final = b"\x32"
_RELEASED_APPLICATION: Final = 2
_BUT_KEY: Final = itemgetter(1, *range(3, len(Released._fields)))
_OTHERS: Final = itemgetter(1, *range(4, len(Released._fields)))
"""The fields of a release that many releases share: all except the key and the application."""
_ASK: Final = Generation.ASK
"""The ask generation as a module constant, because access to a member of an enumeration is slow."""


class PlacementEncoder:
    """The encoder of placements. Its only state is its caches. Each cache is cleared when it is full."""

    def __init__(self) -> None:
        self._nodes: dict[str, bytes] = {}
        self._applications: dict[str, bytes] = {}
        self._templates: dict[str, dict[AskSpec, bytes]] = {}
        """The encoded templates by partition and spec."""

    def encode(self, placements: Iterable[Placed]) -> list[bytes]:
        """Return the encoded message (*piece*) of each placement. This method has the hot loop of the encoder."""
        nodes, applications, templates = self._nodes, self._applications, self._templates
        pieces: list[bytes] = []
        add, join = pieces.append, b"".join
        for _, partition, key, application_id, node_id, spec, tags, generation, _ in placements:
            coded = key.encode()
            name = LENGTHS[len(coded)] + coded  # no name is long enough to exceed this table
            held = tags[0] if tags else b""
            if generation is _ASK:
                # The ask generation identifies an allocation by a UUID. Here the UUID is the key.
                name, held = name + _UUID + name, as_allocation_tags(held)
            known = templates.get(partition)
            body = join(
                (
                    _KEY,
                    name,
                    held,
                    (known and known.get(spec)) or self._template(spec, partition),
                    nodes.get(node_id) or _remember(nodes, _NODE, node_id),
                    applications.get(application_id)
                    or _remember(applications, _APPLICATION, application_id),
                )
            )
            add(_NEW + length(len(body)) + body)
        return pieces

    def _template(self, spec: AskSpec, partition: str) -> bytes:
        if sum(map(len, self._templates.values())) >= PIECES_MAX:
            self._templates.clear()
        known = self._templates.setdefault(partition, {})
        encoded = known[spec] = template(spec, partition)
        return encoded


class ReleaseEncoder:
    """The encoder of the releases of one batch. Many releases share the bytes around the key."""

    def __init__(self) -> None:
        self._around: dict[tuple[object, ...], dict[int, tuple[bytes, ...]]] = {}
        """The bytes before and after the key, by the fields that releases share and then by the length of the key."""
        self._rest: dict[tuple[object, ...], bytes] = {}
        self._applications: dict[str, bytes] = {}

    def encode(self, releases: Iterable[Released]) -> list[bytes]:
        """Return the encoded message (*piece*) of each release."""
        around = self._around
        pieces: list[bytes] = []
        add = pieces.append
        for one in releases:
            alike, key = _BUT_KEY(one), one.key.encode()
            known = around.get(alike)
            if known is None:
                known = around[alike] = {}
            parts = known.get(len(key))
            if parts is None:
                parts = known[len(key)] = self._parts(one, len(key))
            add(key.join(parts))
        return pieces

    def _parts(self, one: Released, size: int) -> tuple[bytes, ...]:
        """Return the bytes around a key of this length.

        The bytes are in two parts, or in three parts if the key is repeated as the UUID.
        """
        applications, others = self._applications, _OTHERS(one)
        rest = self._rest.get(others)
        if rest is None:
            rest = self._rest[others] = _nameless(one)
        application = applications.get(one.application_id) or _remember(
            applications, _RELEASED_APPLICATION, one.application_id
        )
        name, rest = _RELEASED_KEY + length(size), application + rest
        if one.generation is not _ASK:
            return _RELEASED + length(len(name) + size + len(rest)) + name, rest
        uuid = _RELEASED_UUID + length(size)
        body = len(name) + size + len(uuid) + size + len(rest)
        return _RELEASED + length(body) + name, uuid, rest


def _nameless(released: Released) -> bytes:
    """Return the encoded release without its key and its application."""
    nameless = released._replace(key="", application_id="")
    return answers.released(nameless).released[0].SerializeToString()


def _remember(cache: dict[str, bytes], field: int, name: str) -> bytes:
    """Return the encoded name, after adding it to the cache."""
    if len(cache) >= PIECES_MAX:
        cache.clear()
    encoded = cache[name] = text(field, name)
    return encoded


def template(spec: AskSpec, partition: str) -> bytes:
    """Return the encoded fields of an `Allocation` that the pods of one template share."""
    message = si_pb2.Allocation(
        priority=spec.priority,
        partitionName=partition,
        taskGroupName=spec.task_group,
        placeholder=spec.placeholder,
        originator=spec.originator,
        preemptionPolicy=si_pb2.AllocationPreemptionPolicy(
            allowPreemptSelf=spec.allow_preempt_self, allowPreemptOther=spec.allow_preempt_other
        ),
    )
    message.resourcePerAlloc.SetInParent()
    for kind, quantity in spec.resource:
        message.resourcePerAlloc.resources[kind].value = quantity
    return message.SerializeToString(deterministic=True)
