"""A queue configuration from the file that the user names: a queues.yaml, a ConfigMap, or standard input.

In a ConfigMap the configuration is the text under `queues.yaml`, or under `NAME.yaml` if `service.policyGroup` is
NAME. The shim's settings in the ConfigMap are checked, too. In a List with `yunikorn-defaults` and
`yunikorn-configs`, the ConfigMap `yunikorn-configs` takes precedence.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from evenhand.v1 import config_pb2
from evenhand_cli.faults import Fault
from evenhand_cli.files import FILE_BYTES_MAX, read_text
from server.config.header import without_header
from server.model.revisions import ANY_BASE, Base
from shim_client.config import POLICY_GROUP_KEY, BadSettingError, settings_from, unclear_settings
from shim_client.translate.config_map import CONFIG_MAPS, merged, name_of

STANDARD_INPUT: Final = Path("-")
KIND: Final = "ConfigMap"


@dataclass(frozen=True, slots=True)
class QueuesText:
    """The text of a queue configuration, its source, and notes about the source.

    `line` is the line of `source` on which the text begins. `line` is 0 when lines of the text are not lines of the
    file. `base` is the revision that the first line of a file from `evenhand config show` names.
    """

    text: str
    source: str
    line: int = 1
    notes: tuple[str, ...] = ()
    base: Base = ANY_BASE

    def placed(
        self, problems: Iterable[config_pb2.ConfigProblem]
    ) -> list[config_pb2.ConfigProblem]:
        """Return problems of the text, with line numbers of the file instead of line numbers of the text."""
        moved = []
        for one in problems:
            problem = config_pb2.ConfigProblem()
            problem.CopyFrom(one)
            if problem.line and self.line:
                problem.line += self.line - 1
            moved.append(problem)
        return moved


def read_queues(file: Path, where: str) -> QueuesText:
    """Return the queue configuration of a file or, for `-`, of standard input.

    Raises Fault if the file cannot be read, is too large, or has ConfigMaps from which no single configuration
    follows.
    """
    if file == STANDARD_INPUT:
        text, name = _standard_input(where), "standard input"
    else:
        text, name = read_text(file, where), str(file)
    found = _config_maps(text) if KIND in text else []
    read = _unwrapped(found, name) if found else QueuesText(text, name)
    base, rest = without_header(read.text)
    if rest == read.text:
        return read
    return replace(read, text=rest, line=read.line and read.line + 1, base=base)


def _standard_input(where: str) -> str:
    text = sys.stdin.read(FILE_BYTES_MAX + 1)
    if len(text) > FILE_BYTES_MAX:
        raise Fault(f"the input is larger than {FILE_BYTES_MAX:,} characters", where=where)
    return text


@dataclass(frozen=True, slots=True)
class _Map:
    """A ConfigMap, with the line on which each text of its data begins."""

    item: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the ConfigMap."""
        return name_of(self.item)


def _config_maps(text: str) -> list[_Map]:
    """Return the ConfigMaps of a text, including the items of a List; empty if the text has no ConfigMap."""
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        items = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, RecursionError, ValueError):
        return []
    found = []
    for node, item in zip(nodes, items, strict=True):
        for one, inner in _flattened(item, node):
            if isinstance(one, dict) and one.get("kind") == KIND:
                found.append(_Map(one, dict(_lines(inner))))
    return found


def _flattened(item: object, node: yaml.Node) -> Iterator[tuple[object, yaml.Node]]:
    """Yield the object itself, or the items of a List."""
    listed = _value(node, "items")
    if isinstance(item, dict) and isinstance(item.get("items"), list) and listed is not None:
        yield from zip(item["items"], listed.value, strict=True)
    else:
        yield item, node


def _value(node: yaml.Node, key: str) -> yaml.Node | None:
    """Return the YAML node of the value under this key. Return None if `node` is no mapping or lacks the key."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _lines(node: yaml.Node) -> Iterator[tuple[str, int]]:
    """Yield the key of each text of `data`, and the line on which the text begins.

    The line is 0 unless the text is a literal block (`|`).
    """
    data = _value(node, "data")
    for key, value in data.value if isinstance(data, yaml.MappingNode) else ():
        yield key.value, value.start_mark.line + 2 if value.style == "|" else 0


def _unwrapped(found: Sequence[_Map], name: str) -> QueuesText:
    chosen = _chosen(found, name)
    flat, problems = merged(_as_known(chosen))
    if problems:
        raise Fault(
            "\n".join(problems), where=name, advice="pack the text again, or write it under `data`"
        )
    try:
        group = settings_from(flat).policy_group
    except BadSettingError as bad:
        raise Fault(
            str(bad), where=f"{name}: {KIND} {chosen[-1].name}", advice="correct that setting"
        ) from bad
    key = f"{group}.yaml"
    if not flat.get(key):
        others = [one for one in flat if one.endswith(".yaml")]
        has = f"it has {', '.join(others)}" if others else f"put the queues under `data: {key}:`"
        raise Fault(
            f"the {KIND} has no key {key}",
            where=name,
            advice=f"{has}; {POLICY_GROUP_KEY} says which key counts, and is `{group}`",
        )
    owner = next(one for one in reversed(chosen) if _holds(one, key))
    packed = f"{key}.gz" in (owner.item.get("binaryData") or {})
    line = 0 if packed else owner.lines.get(key, 0)
    source = name if line else f"{name} ({key})"
    return QueuesText(flat[key], source, line, tuple(_notes(chosen, owner, key, flat)))


def _chosen(found: Sequence[_Map], name: str) -> list[_Map]:
    """Return the ConfigMaps with the shim's settings; the last ConfigMap takes precedence.

    A single ConfigMap may have any name. Raises Fault when there are several ConfigMaps, and none of them has a name
    that the shim reads.
    """
    if len(found) == 1:
        return list(found)
    known = sorted(
        (one for one in found if one.name in CONFIG_MAPS),
        key=lambda one: CONFIG_MAPS.index(one.name),
    )
    if not known:
        raise Fault(
            f"{len(found)} ConfigMaps, and none is called {' or '.join(CONFIG_MAPS)}",
            where=name,
            advice="give one ConfigMap, or these two",
        )
    return known


def _as_known(chosen: Sequence[_Map]) -> list[Mapping[str, Any]]:
    """Return the ConfigMaps with names that the shim reads. A single ConfigMap, which may have any name, is renamed."""
    if len(chosen) == 1:
        return [{**chosen[0].item, "metadata": {"name": CONFIG_MAPS[-1]}}]
    return [one.item for one in chosen]


def _holds(one: _Map, key: str) -> bool:
    return key in (one.item.get("data") or {}) or f"{key}.gz" in (one.item.get("binaryData") or {})


def _notes(chosen: Sequence[_Map], owner: _Map, key: str, flat: Mapping[str, str]) -> Iterator[str]:
    overrides = (
        f", which overrides {chosen[0].name}" if len(chosen) > 1 and owner is not chosen[0] else ""
    )
    yield f"read {key} of the {KIND} {owner.name or '(without a name)'}{overrides}"
    yield from unclear_settings(flat)
    others = sorted(one for one in flat if one.endswith(".yaml") and one != key)
    if others:
        yield f"not read: {', '.join(others)}; {POLICY_GROUP_KEY} says which key counts"
