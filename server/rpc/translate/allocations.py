"""The slow path for asks and existing allocations (design 1.1). The slow path reads one object at a time, and handles every case."""

from dataclasses import dataclass, field

from server.model.asks import AskSpec, Generation, Tags
from server.model.decisions import AskRejected, Decision
from server.model.events import AllocationAdded, AskAdded, Event, ForeignAdded
from server.rpc import tags
from server.rpc.limits import NAME_CHARACTERS_MAX
from server.rpc.translate.fields import RefusedError, milliseconds, name
from server.rpc.translate.templates import Specs, Template
from server.rpc.wire_schemas import AskHead, Head
from si.v1 import si_pb2


@dataclass(slots=True)
class Batch:
    """The content of one message: events for the core, in order, and refusals that are answered without the core."""

    rm_id: str
    events: list[Event] = field(default_factory=list)
    refusals: list[Decision] = field(default_factory=list)

    def refuse(self, key: str, application: str, reason: str, generation: Generation) -> None:
        """Add the refusal of one ask or allocation.

        Names in the refusal are cut at NAME_CHARACTERS_MAX.
        """
        key, application = key[:NAME_CHARACTERS_MAX], application[:NAME_CHARACTERS_MAX]
        self.refusals.append(AskRejected(self.rm_id, "", key, application, reason, generation))


class Reader:
    """The reader that turns asks and allocations of both generations of the interface into events. Equal specs become one object."""

    def __init__(self) -> None:
        self._specs = Specs()

    def ask_template(self, encoded: bytes) -> Template:
        """Return the template that these bytes encode: an `AllocationAsk` without its head and its tags."""
        message = si_pb2.AllocationAsk.FromString(encoded)
        return self._specs.sized(message, "resourceAsk", self._specs.of_ask)

    def allocation_template(self, encoded: bytes) -> Template:
        """Return the template that these bytes encode: an `Allocation` without its head and its tags."""
        message = si_pb2.Allocation.FromString(encoded)
        return self._specs.sized(message, "resourcePerAlloc", self._specs.of_allocation)

    def add_ask(self, batch: Batch, head: AskHead, raw: bytes, template: Template) -> None:
        """Add an ask that arrived as an `AllocationAsk`, the older message, to the batch. If the ask is refused, add its refusal."""
        try:
            batch.events.append(self._ask(batch.rm_id, head, raw, template, Generation.ASK))
        except RefusedError as refused:
            batch.refuse(head.key, head.application, str(refused), Generation.ASK)

    def add_allocation(self, batch: Batch, head: Head, raw: bytes, template: Template) -> None:
        """Add an ask, existing allocation or foreign allocation that arrived as an `Allocation` to the batch.

        If the object is refused, add its refusal.
        """
        try:
            batch.events.append(self._allocation(batch.rm_id, head, raw, template))
        except RefusedError as refused:
            batch.refuse(head.key, head.application, str(refused), Generation.ALLOCATION)

    def _allocation(self, rm_id: str, head: Head, raw: bytes, template: Template) -> Event:
        if not head.application and head.key:
            return _foreign(rm_id, head, raw, template)
        if not head.node:
            return self._ask(rm_id, head, raw, template, Generation.ALLOCATION)
        return self._existing(rm_id, head, raw, template)

    def _ask(
        self, rm_id: str, head: AskHead, raw: bytes, template: Template, generation: Generation
    ) -> AskAdded:
        _check(head, template)
        if not template.waits:
            field = "resourceAsk" if generation is Generation.ASK else "resourcePerAlloc"
            raise RefusedError(f"{field}: asks for nothing")
        return AskAdded(
            rm_id,
            head.key,
            head.application,
            self._spec(template, raw),
            template.partition,
            tags.created_ms(raw),
            _held(raw),
            generation,
        )

    def _existing(self, rm_id: str, head: Head, raw: bytes, template: Template) -> AllocationAdded:
        """Return the event for an allocation that already runs, from an `Allocation` of an `AllocationRequest`."""
        _check(head, template)
        return AllocationAdded(
            rm_id,
            head.key,
            head.application,
            name("nodeID", head.node),
            self._spec(template, raw),
            template.partition,
            tags.created_ms(raw),
            milliseconds("startedAt", head.started) or None,
            template.mark,
            _held(raw),
        )

    def reported(self, rm_id: str, message: si_pb2.Allocation, node_id: str) -> AllocationAdded:
        """Return the event for a running allocation that a node's message lists, as in the older interface.

        Raise RefusedError for a wrong field.
        """
        template = self._specs.of_allocation(message)
        if template.refusal:
            raise RefusedError(template.refusal)
        entries = si_pb2.Allocation(allocationTags=message.allocationTags).SerializeToString()
        return AllocationAdded(
            rm_id,
            name("allocationKey", message.allocationKey or message.UUID),
            name("applicationID", message.applicationID),
            node_id,
            self._spec(template, entries),
            template.partition,
            tags.created_ms(entries),
            milliseconds("startedAt", message.startedAt) or None,
            template.mark,
            _held(entries),
            Generation.ASK,
        )

    def _spec(self, template: Template, raw: bytes) -> AskSpec:
        """Return the template's spec, with the required node if the tags name one."""
        if tags.REQUIRED_NODE_WORD not in raw:
            return template.spec
        node_id = tags.decoded((raw,)).get(tags.REQUIRED_NODE, "")
        return self._specs.on_node(template.spec, node_id) if node_id else template.spec


def _check(head: AskHead, template: Template) -> None:
    name("allocationKey", head.key)
    name("applicationID", head.application)
    if template.refusal:
        raise RefusedError(template.refusal)


def _held(raw: bytes) -> Tags:
    return (raw,) if raw else ()


def _foreign(rm_id: str, head: Head, raw: bytes, template: Template) -> ForeignAdded:
    """Return the event for a pod of another scheduler.

    The message of such a pod has a node, the tag `foreign` and no application.

    Raise RefusedError if the tag, the node or the key is missing, or if the template is refused.
    """
    kind = tags.decoded((raw,)).get(tags.FOREIGN)
    if kind is None:
        raise RefusedError(
            "applicationID: is empty; only a foreign allocation, with the tag foreign, has none"
        )
    if template.refusal:
        raise RefusedError(template.refusal)
    key, node_id = name("allocationKey", head.key), name("nodeID", head.node)
    static = kind == tags.FOREIGN_STATIC
    taken, where = template.spec.resource, template.partition
    return ForeignAdded(rm_id, key, node_id, taken, where, static, _held(raw))
