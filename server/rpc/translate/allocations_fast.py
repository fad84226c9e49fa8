"""The decoder of AllocationRequest bytes into events: the fast path (docs/performance.md).

An ask with a known template costs one cache look-up, three reads and one tuple. Every other ask takes the slow path through
`translate`. The result equals the result of the generated classes: `tests/rpc` compares the two results for arbitrary bytes.
The two results differ in one case: a tag *value* that contains the bytes of a whole `creationTime` entry may be read as such an
entry.
"""

from collections.abc import Callable, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from server.model.asks import NO_TAGS, AskSpec, Generation
from server.model.events import AskAdded
from server.model.parts import Parts
from server.rpc.limits import (
    NAME_CHARACTERS_MAX,
    OBJECTS_MAX,
    STEP_BYTES,
    STEP_OBJECTS,
    TEMPLATES_MAX,
)
from server.rpc.tags import CREATION_ENTRY, REQUIRED_NODE_WORD, created_ms
from server.rpc.translate.allocations import Batch, Reader
from server.rpc.translate.plan_checks import add_answers
from server.rpc.translate.releases import add_budgets, add_releases, add_vetoes
from server.rpc.translate.templates import Template
from server.rpc.wire_schemas import (
    ALLOCATION_TAGS,
    ALLOCATION_TEMPLATES,
    ASK_TAGS,
    ASK_TEMPLATES,
    Envelope,
    Head,
    Slicer,
)
from si.v1 import si_pb2

_LENGTH: Final = len(CREATION_ENTRY)
_TEXT: Final = _LENGTH + 1
"""The indexes of the length and of the text of a value in a `creationTime` entry."""


class MalformedError(ValueError):
    """The error of bytes that are not an AllocationRequest, or of a message that exceeds a limit."""


class _Templates:
    """The templates of one generation of the interface, by their encoded bytes.

    `plain` has the templates that the fast path can use.
    """

    def __init__(
        self,
        generation: Generation,
        slicers: tuple[Slicer, Slicer],
        parse: Callable[[bytes], Template],
        add: Callable[[Batch, Head, bytes, Template], None],
    ) -> None:
        self.generation = generation
        self.tags, self.encodings = slicers
        self.plain: dict[bytes, tuple[AskSpec, str]] = {}
        self._all: dict[bytes, Template] = {}
        self._parse = parse
        self._add = add

    def add(self, batch: Batch, head: Head, tags: bytes, encoded: bytes) -> None:
        """Add one ask or allocation on the slow path. Raise DecodeError for malformed bytes."""
        self._add(batch, head, tags, self.template(encoded))

    def template(self, encoded: bytes) -> Template:
        """Return the template of an encoding, decoded and cached if it is new. Raise DecodeError for malformed bytes."""
        known = self._all.get(encoded)
        if known is not None:
            return known
        template = self._parse(encoded)
        if len(self._all) >= TEMPLATES_MAX:
            self.plain.clear()
            self._all.clear()
        self._all[encoded] = template
        if template.waits and not template.refusal:
            self.plain[encoded] = (template.spec, template.partition)
        return template


class AllocationCodec:
    """The decoder of AllocationRequests. Its only state is its caches of decoded templates and times."""

    def __init__(self, reader: Reader) -> None:
        self._asks = _Templates(
            Generation.ASK, (ASK_TAGS, ASK_TEMPLATES), reader.ask_template, reader.add_ask
        )
        self._allocations = _Templates(
            Generation.ALLOCATION,
            (ALLOCATION_TAGS, ALLOCATION_TEMPLATES),
            reader.allocation_template,
            reader.add_allocation,
        )
        self._created: dict[bytes, int] = {}

    def decoding(self, data: bytes) -> Parts[Batch]:
        """Decode a message in steps, because many new templates take long. Raise MalformedError for malformed bytes."""
        try:
            return (yield from self._decoding(data))
        except DecodeError as error:
            raise MalformedError(f"these bytes are no AllocationRequest: {error}") from error

    def _decoding(self, data: bytes) -> Parts[Batch]:
        request = Envelope.FromString(data)
        batch = Batch(request.manager)
        allocations, asks = request.allocations, request.asks
        vetoes, budgets, releases = request.vetoes, request.budgets, _releases(request.releases)
        answers = request.answers
        count = len(asks) + len(allocations) + len(vetoes) + len(budgets) + len(answers)
        if releases is not None:
            count += len(releases.allocationsToRelease) + len(releases.allocationAsksToRelease)
        if count > OBJECTS_MAX:
            raise MalformedError(f"the message has {count} objects, allowed are {OBJECTS_MAX}")
        if allocations:
            yield from self._each(batch, self._allocations, allocations, data)
        if asks:
            yield from self._each(batch, self._asks, asks, data)
        add_vetoes(batch, vetoes)
        add_budgets(batch, budgets)
        add_answers(batch, answers)
        if releases is not None:
            add_releases(batch, releases)
        return batch

    def _each(
        self, batch: Batch, templates: _Templates, heads: Sequence[Head], data: bytes
    ) -> Parts[None]:
        """Add one event for each ask or allocation of a message. This method has the hot loop of the decoder."""
        if len(self._created) >= TEMPLATES_MAX:
            self._created.clear()
        known, memo = templates.plain.get, self._created.get
        rm_id, generation, add, new = (
            batch.rm_id,
            templates.generation,
            batch.events.append,
            tuple.__new__,
        )
        # One search of the whole message is cheaper than one search for each ask.
        pins = REQUIRED_NODE_WORD in data
        slow, size = 0, 0
        all_tags = templates.tags(data, len(heads))
        encodings = templates.encodings(data, len(heads))
        for head, raw, encoded in zip(heads, all_tags, encodings, strict=True):
            if slow >= STEP_OBJECTS or size >= STEP_BYTES:
                slow, size = 0, 0
                yield
            found, key, application = known(encoded), head.key, head.application
            if found is None:
                slow, size = slow + 1, size + len(encoded)
                templates.template(encoded)
                found = known(encoded)
            if (
                found is None
                or not key
                or not application
                or len(key) + len(application) > NAME_CHARACTERS_MAX
                or not (key.isprintable() and application.isprintable())
                or head.node
                or (pins and REQUIRED_NODE_WORD in raw)
            ):
                slow, size = slow + 1, size + len(encoded)
                templates.add(batch, head, raw, encoded)
                continue
            start = raw.rfind(CREATION_ENTRY)
            text = raw[start + _TEXT : start + _TEXT + raw[start + _LENGTH]] if start >= 0 else b""
            created = memo(text) or self._instant(text, raw)
            held = (raw,) if raw else NO_TAGS
            spec, partition = found
            add(
                new(AskAdded, (rm_id, key, application, spec, partition, created, held, generation))
            )

    def _instant(self, text: bytes, raw: bytes) -> int | None:
        """Return the creation time of an ask in milliseconds.

        The time is cached by its text, because many asks are created in one second.
        """
        created = created_ms(raw)
        if created and text:
            self._created[text] = created
        return created


def _releases(parts: Sequence[bytes]) -> si_pb2.AllocationReleasesRequest | None:
    """Return the releases of a request, merged from its parts as protobuf prescribes. Return None if there are no releases."""
    return si_pb2.AllocationReleasesRequest.FromString(b"".join(parts)) if parts else None
