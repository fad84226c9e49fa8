"""The meaning of an AllocationRequest, read field by field with the generated classes, to compare the codec with.

Only the translation of a template is shared with the code under test; it has test cases of its own.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unicodedata import category

from server.model.asks import values
from server.model.events import AllocationAdded, AskAdded, Event, ForeignAdded
from server.rpc.limits import NAME_CHARACTERS_MAX
from server.rpc.tags import decoded
from server.rpc.translate.allocations import Batch
from server.rpc.translate.plan_checks import add_answers
from server.rpc.translate.releases import add_budgets, add_releases, add_vetoes
from server.rpc.translate.templates import Specs, Template
from si.v1 import si_pb2 as si

Meaning = tuple[object, ...]
"""An event or refusal with specs and tags by value."""


def meaning_of(batch: Batch) -> tuple[str, list[Meaning], list[Meaning]]:
    """Return a batch as values that can be compared: manager, events, refusals."""
    return (
        batch.rm_id,
        [_by_value(one) for one in batch.events],
        [(*one,) for one in batch.refusals],
    )


def _by_value(event: Event) -> Meaning:
    """Return an event by its values, because specs compare by identity and the order of tags varies."""
    kind = type(event).__name__
    if isinstance(event, AskAdded | AllocationAdded):
        facts = event._asdict()
        del facts["spec"], facts["tags"]
        return kind, *facts.values(), values(event.spec), dict(decoded(event.tags))
    if isinstance(event, ForeignAdded):
        return kind, *event[:-1], dict(decoded(event.tags))
    return kind, *event


def read(data: bytes) -> tuple[str, list[Meaning], list[Meaning]]:
    """Return the meaning of the bytes. Raises DecodeError."""
    message = si.AllocationRequest.FromString(data)
    specs, rm_id = Specs(), message.rmID
    events: list[Meaning] = []
    refusals: list[Meaning] = []
    for one in message.allocations:
        read_one = _allocation(rm_id, one, specs.of_allocation(one))
        (events if read_one[0] in _EVENTS else refusals).append(read_one)
    for ask in message.asks:
        read_one = _ask(rm_id, ask, specs.of_ask(ask))
        (events if read_one[0] in _EVENTS else refusals).append(read_one)
    rest = Batch(rm_id)
    add_vetoes(rest, [veto.SerializeToString() for veto in message.vetoes])
    add_budgets(rest, [budget.SerializeToString() for budget in message.disruptionBudgets])
    add_answers(rest, [answer.SerializeToString() for answer in message.planCheckAnswers])
    add_releases(rest, message.releases)
    _, more, refused = meaning_of(rest)
    return rm_id, events + more, refusals + refused


_EVENTS = frozenset({"AskAdded", "AllocationAdded", "ForeignAdded"})


def _allocation(rm_id: str, one: si.Allocation, template: Template) -> Meaning:
    tags = dict(one.allocationTags)
    ids = (one.allocationKey, one.applicationID)
    if one.allocationKey and not one.applicationID:
        return _foreign(rm_id, one, template, tags)
    problem = _problem(*ids) or template.refusal
    if problem:
        return _refused(rm_id, *ids, problem, 0)
    spec = (*_pinned(template, tags),)
    if not one.nodeID:
        if not template.waits:
            return _refused(rm_id, *ids, "resourcePerAlloc: asks for nothing", 0)
        event: Meaning = ("AskAdded", rm_id, *ids, template.partition, _created(tags), 0)
        return *event, spec, tags
    if problem := _wrong("nodeID", one.nodeID):
        return _refused(rm_id, *ids, problem, 0)
    if not 0 <= one.startedAt <= 10**13:
        return _refused(rm_id, *ids, f"startedAt: {one.startedAt} is not between 0 and {10**13}", 0)
    event = ("AllocationAdded", rm_id, *ids, one.nodeID, template.partition, _created(tags))
    return *event, one.startedAt or None, template.mark, 0, spec, tags


def _foreign(rm_id: str, one: si.Allocation, template: Template, tags: dict[str, str]) -> Meaning:
    problem = ""
    if "foreign" not in tags:
        problem = (
            "applicationID: is empty; only a foreign allocation, with the tag foreign, has none"
        )
    elif template.refusal:
        problem = template.refusal
    else:
        problem = _wrong("allocationKey", one.allocationKey) or _wrong("nodeID", one.nodeID)
    if problem:
        return _refused(rm_id, one.allocationKey, "", problem, 0)
    static = tags["foreign"] == "static"
    where = (one.nodeID, template.spec.resource, template.partition, static)
    return ("ForeignAdded", rm_id, one.allocationKey, *where, tags)


def _ask(rm_id: str, one: si.AllocationAsk, template: Template) -> Meaning:
    tags = dict(one.tags)
    ids = (one.allocationKey, one.applicationID)
    problem = _problem(*ids) or template.refusal
    if not problem and not template.waits:
        problem = "resourceAsk: asks for nothing"
    if problem:
        return _refused(rm_id, *ids, problem, 1)
    event: Meaning = ("AskAdded", rm_id, *ids, template.partition, _created(tags), 1)
    return *event, (*_pinned(template, tags),), tags


def _problem(key: str, application: str) -> str:
    return _wrong("allocationKey", key) or _wrong("applicationID", application)


def _wrong(field: str, text: str) -> str:
    if not text:
        return f"{field}: is empty"
    if len(text) > NAME_CHARACTERS_MAX:
        return f"{field}: has {len(text)} characters, allowed are {NAME_CHARACTERS_MAX}"
    for at, character in enumerate(text, 1):
        if category(character) == "Cc" or character in _REORDERING:
            return f"{field}: character {at} is a control character (U+{ord(character):04X})"
    return ""


_REORDERING = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def _refused(rm_id: str, key: str, application: str, reason: str, generation: int) -> Meaning:
    return (
        rm_id,
        "",
        key[:NAME_CHARACTERS_MAX],
        application[:NAME_CHARACTERS_MAX],
        reason,
        generation,
    )


def _created(tags: Mapping[str, str]) -> int | None:
    text = tags.get("creationTime", "")
    digits = text.isascii() and text.isdigit() and len(text) <= 10
    return int(text) * 1000 if digits else None


def _pinned(template: Template, tags: Mapping[str, str]) -> list[Any]:
    node_id = tags.get("yunikorn.apache.org/requiredNode", "")
    spec = list(values(template.spec))
    if node_id:
        place = next(i for i, one in enumerate(spec) if one is template.spec.constraints)
        spec[place] = replace(template.spec.constraints, required_node=node_id)
    return spec
