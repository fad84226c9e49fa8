"""AllocationRequest bytes to events: the fast path (performance, section 1).

An ask whose template is known costs one cache look-up, three reads and one tuple; all else goes the long way through
`translate`. The meaning is that of the generated classes: `tests/rpc` compares both for arbitrary bytes.

One narrowing: a tag *value* that contains the bytes of a whole `creationTime` entry may be taken for the entry.
"""

from collections.abc import Callable, Iterable
from typing import Final

from google.protobuf.message import DecodeError

from server.model.asks import NO_TAGS, AskSpec, Generation
from server.model.events import AskAdded
from server.rpc.limits import NAME_CHARACTERS_MAX, OBJECTS_MAX, TEMPLATES_MAX
from server.rpc.tags import CREATION_ENTRY, REQUIRED_NODE_WORD, created_ms
from server.rpc.translate.allocations import Batch, Reader
from server.rpc.translate.releases import add_budgets, add_releases, add_vetoes
from server.rpc.translate.templates import Template
from server.rpc.views import TAGS, TEMPLATES, Envelope, Head, Request, slices
from si.v1 import si_pb2

_LENGTH: Final = len(CREATION_ENTRY)
_TEXT: Final = _LENGTH + 1
"""Where the length and the text of a value stand in a `creationTime` entry."""


class MalformedError(ValueError):
    """The bytes are no such message, or the message passes a limit."""


class _Templates:
    """What the encodings of one generation mean; `plain` holds those that need no further look."""

    def __init__(
        self,
        generation: Generation,
        parse: Callable[[bytes], Template],
        add: Callable[[Batch, Head, bytes, Template], None],
    ) -> None:
        self.generation = generation
        self.plain: dict[bytes, tuple[AskSpec, str]] = {}
        self._all: dict[bytes, Template] = {}
        self._parse = parse
        self._add = add

    def add(self, batch: Batch, head: Head, tags: bytes, encoded: bytes) -> None:
        """Takes one ask the long way and remembers its template; malformed bytes raise DecodeError."""
        template = self._all.get(encoded)
        if template is None:
            template = self._parse(encoded)
            self._remember(encoded, template)
        self._add(batch, head, tags, template)

    def _remember(self, encoded: bytes, template: Template) -> None:
        if len(self._all) >= TEMPLATES_MAX:
            self.plain.clear()
            self._all.clear()
        self._all[encoded] = template
        if template.waits and not template.refusal:
            self.plain[encoded] = (template.spec, template.partition)


class AllocationCodec:
    """Decodes AllocationRequests. Holds nothing but caches of what it has seen."""

    def __init__(self, reader: Reader) -> None:
        self._asks = _Templates(Generation.ASK, reader.ask_template, reader.add_ask)
        self._allocations = _Templates(
            Generation.ALLOCATION, reader.allocation_template, reader.add_allocation
        )
        self._created: dict[bytes, int] = {}

    def decode(self, data: bytes) -> Batch:
        """The batch of a message; raises MalformedError."""
        try:
            return self._decode(data)
        except DecodeError as error:
            raise MalformedError(f"these bytes are no AllocationRequest: {error}") from error

    def _decode(self, data: bytes) -> Batch:
        request = Envelope.FromString(data)
        releases = si_pb2.AllocationReleasesRequest.FromString(b"".join(request.releases))
        count = len(request.asks) + len(request.allocations) + len(request.vetoes)
        count += len(releases.allocationsToRelease) + len(releases.allocationAsksToRelease)
        count += len(request.budgets)
        if count > OBJECTS_MAX:
            raise MalformedError(f"the message has {count} objects, allowed are {OBJECTS_MAX}")
        batch = Batch(request.manager)
        if request.asks or request.allocations:
            self._add(batch, request, data)
        add_vetoes(batch, request.vetoes)
        add_budgets(batch, request.budgets)
        add_releases(batch, releases)
        return batch

    def _add(self, batch: Batch, request: Request, data: bytes) -> None:
        """Adds asks and allocations of both generations."""
        if len(self._created) >= TEMPLATES_MAX:
            self._created.clear()
        ask_tags, allocation_tags = slices(TAGS, data)
        ask_templates, allocation_templates = slices(TEMPLATES, data)
        # One search over the message is cheaper than one for each ask.
        pins = REQUIRED_NODE_WORD in data
        allocations = zip(request.allocations, allocation_tags, allocation_templates, strict=True)
        self._each(batch, self._allocations, allocations, pins=pins)
        asks = zip(request.asks, ask_tags, ask_templates, strict=True)
        self._each(batch, self._asks, asks, pins=pins)

    def _each(
        self,
        batch: Batch,
        templates: _Templates,
        rows: Iterable[tuple[Head, bytes, bytes]],
        *,
        pins: bool,
    ) -> None:
        """Adds one event for each row of head, tags and template: the loop that everything else serves.

        ``pins``: the message speaks of required nodes somewhere.
        """
        known, memo = templates.plain.get, self._created.get
        rm_id, generation, add, new = (
            batch.rm_id,
            templates.generation,
            batch.events.append,
            tuple.__new__,
        )
        for head, raw, encoded in rows:
            found, key, application = known(encoded), head.key, head.application
            if (
                found is None
                or not key
                or not application
                or len(key) + len(application) > NAME_CHARACTERS_MAX
                or head.node
                or (pins and REQUIRED_NODE_WORD in raw)
            ):
                templates.add(batch, head, raw, encoded)
                continue
            start = raw.rfind(CREATION_ENTRY)
            text = raw[start + _TEXT : start + _TEXT + raw[start + _LENGTH]] if start >= 0 else b""
            created = memo(text) or self._instant(text, raw)
            held = (raw,) if raw else NO_TAGS
            add(new(AskAdded, (rm_id, key, application, *found, created, held, generation)))

    def _instant(self, text: bytes, raw: bytes) -> int | None:
        """The creation of an ask in milliseconds, remembered: many are created in one second."""
        created = created_ms(raw)
        if created and text:
            self._created[text] = created
        return created
