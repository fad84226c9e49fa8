"""Names and numbers of si.v1 are the published ones; they are compared with a table in this project."""

import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from si.v1 import si_pb2

TABLE = Path(__file__).parents[3] / "shared" / "wire.md"
ROW = re.compile(
    r"^\| (?P<enum>enum )?(?P<name>[\w.]+)( \(\w+\))? \| (?P<fields>.*) \|$", re.MULTILINE
)
FIELD = re.compile(r"(\d+) (\w+) (repeated )?(map<string, \w+>|\w+)")
OWN = 100
# The ask generation's message has two readings of its field 2; Allocation's has a name of its own.
RENAMED = {"PreemptionPolicy": "AllocationPreemptionPolicy"}


def table() -> str:
    if not TABLE.exists():
        pytest.skip("the table ../shared/wire.md is not here")
    return TABLE.read_text()


def rows(*, enums: bool) -> list[tuple[str, str]]:
    found = [m for m in ROW.finditer(table()) if bool(m["enum"]) == enums]
    return [(m["name"], m["fields"]) for m in found if m["name"] not in ("message", "---")]


def spelled(field: FieldDescriptor) -> tuple[int, str, bool, str]:
    """Return the field as the table spells it."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        value = message.fields_by_name["value"]
        return field.number, field.json_name, False, f"map<string, {kind(value)}>"
    return field.number, field.json_name, field.is_repeated, kind(field)


def kind(field: FieldDescriptor) -> str:
    """Return the type of a field, as the table names it."""
    if field.message_type is not None:
        return str(field.message_type.name)
    if field.enum_type is not None:
        return str(field.enum_type.name)
    names = {FieldDescriptor.TYPE_STRING: "string", FieldDescriptor.TYPE_BOOL: "bool"}
    names |= {FieldDescriptor.TYPE_INT32: "int32", FieldDescriptor.TYPE_INT64: "int64"}
    return names[field.type]


def published(message: Descriptor) -> set[tuple[int, str, bool, str]]:
    return {spelled(field) for field in message.fields if field.number < OWN}


def test_messages_have_the_published_fields() -> None:
    messages = si_pb2.DESCRIPTOR.message_types_by_name
    assert len(rows(enums=False)) > 30
    for name, text in rows(enums=False):
        expected = {
            (int(number), field, bool(repeated), kind)
            for number, field, repeated, kind in FIELD.findall(text)
        }
        if name == "Allocation":
            expected.remove((15, "preemptionPolicy", False, "PreemptionPolicy"))
            expected.add((15, "preemptionPolicy", False, RENAMED["PreemptionPolicy"]))
        assert published(messages[RENAMED.get(name, name)]) == expected, name


def enum_named(name: str) -> EnumDescriptor:
    owner, _, inner = name.rpartition(".")
    if not owner:
        return si_pb2.DESCRIPTOR.enum_types_by_name[name]
    return si_pb2.DESCRIPTOR.message_types_by_name[owner].enum_types_by_name[inner]


def test_enums_have_the_published_values() -> None:
    assert len(rows(enums=True)) == 3
    for name, text in rows(enums=True):
        expected = {value: int(number) for value, number in re.findall(r"(\w+) = (\d+)", text)}
        assert {v.name: v.number for v in enum_named(name).values} == expected, name


def test_asks_and_allocations_share_our_own_fields() -> None:
    messages = si_pb2.DESCRIPTOR.message_types_by_name
    ask = {spelled(f) for f in messages["AllocationAsk"].fields if f.number >= OWN}
    allocation = {spelled(f) for f in messages["Allocation"].fields if f.number >= OWN}
    assert allocation - ask == {(108, "releasing", False, "ReleasingMark")}
    assert ask < allocation
