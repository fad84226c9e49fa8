"""The settings of queues, and the origin of each setting: one queue explained, or many queues in one table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from evenhand.v1 import explain_pb2, inspect_pb2
from evenhand_cli.render.amounts import amount, heading, in_order, maybe, phrase
from evenhand_cli.render.columns import Column, table, titled
from evenhand_cli.render.words import reasons

HERE = "here"
OF_PEOPLE = ("limits", "submitacl", "adminacl")
ORIGINS: Mapping[int, str] = {
    inspect_pb2.SETTING_ORIGIN_HERE: HERE,
    inspect_pb2.SETTING_ORIGIN_INHERITED: "inherited from {queue}",
    inspect_pb2.SETTING_ORIGIN_DEFAULT: "default",
    inspect_pb2.SETTING_ORIGIN_TEMPLATE: "template of {queue}",
    inspect_pb2.SETTING_ORIGIN_TAG: "namespace annotation",
}
SETTING_LEAST = 28
"""Smallest width to which the names of queues and settings are shortened."""
TEXT_LEAST = 20
"""Smallest width to which values and their origins are folded."""
Line = tuple[str, str, str]
"""Name, value and origin of a setting. If a setting has amounts of several resource types, they share one line."""


def explained(found: explain_pb2.ExplainedQueue, width: int) -> list[RenderableType]:
    """Return the numbers of the queue, then the settings that were written, then the settings with default values."""
    parts = titled("now", _numbers(found.queue), width)
    if found.queue.waiting_reasons:
        parts.append(Text(f"waits for: {reasons(found.queue.waiting_reasons)}", style="warn"))
    written = list(setting_lines(one for one in found.settings if not _is_default(one)))
    if written:
        parts += [Text(), table(_columns(written), width)]
    defaults = ", ".join(f"{one.name} {one.value}" for one in found.settings if _is_default(one))
    parts.append(Text(f"\nby default: {defaults}", style="faint"))
    return parts


def listing(found: Sequence[inspect_pb2.QueueSettings], width: int) -> RenderableType:
    """Return the settings of each queue. A setting that has its default value in all queues is left out."""
    names: list[RenderableType] = []
    lines: list[Line] = []
    for queue in found:
        written = list(setting_lines(one for one in queue.settings if _is_of_queue(one)))
        names += [Text(queue.path, style="key"), *(f"  {name}" for name, _, _ in written)]
        lines += [("", "" if written else "all by default", ""), *written]
    note = Text(
        "\nwhat is not listed has its default; limits and access lists of the queues above hold, too."
        "\nevery setting of one queue: evenhand explain QUEUE",
        style="faint",
    )
    columns = [
        Column("queue, setting", names, least=SETTING_LEAST, names=True),
        *_columns(lines)[1:],
    ]
    return Group(table(columns, width), note)


def _columns(lines: Sequence[Line]) -> list[Column]:
    return [
        Column("setting", [name for name, _, _ in lines]),
        Column("value", [value for _, value, _ in lines], least=TEXT_LEAST),
        Column("from", [origin for _, _, origin in lines], least=TEXT_LEAST),
    ]


def setting_lines(settings: Iterable[inspect_pb2.QueueSetting]) -> Iterator[Line]:
    """Yield one line for each key and origin, with the amounts of all resource types."""
    amounts: dict[tuple[str, str], dict[str, int]] = {}
    lines: list[tuple[str, str, str]] = []
    for one in settings:
        origin = _origin(one)
        if not one.resource_type:
            lines.append((one.name, one.value, origin))
            continue
        key = (one.name.removesuffix(f".{one.resource_type}"), origin)
        if key not in amounts:
            amounts[key] = {}
            lines.append((key[0], "", origin))
        amounts[key][one.resource_type] = one.amount
    for name, value, origin in lines:
        together = amounts.get((name, origin))
        yield name, _limits(together) if together else value, origin


def _limits(amounts: Mapping[str, int]) -> str:
    """Return amounts in one line, including zeros, because a limit of zero forbids the type."""
    zeros = [f"no {heading(kind)}" for kind in in_order(amounts) if not amounts[kind]]
    rest = {kind: value for kind, value in amounts.items() if value}
    return ", ".join([*([phrase(rest)] if rest else []), *zeros])


def _origin(one: inspect_pb2.QueueSetting) -> str:
    text = ORIGINS.get(one.origin, "").format(queue=one.queue)
    return f"{text}; {one.note}" if one.note else text


def _is_default(one: inspect_pb2.QueueSetting) -> bool:
    return one.origin == inspect_pb2.SETTING_ORIGIN_DEFAULT and not one.note


def _is_of_queue(one: inspect_pb2.QueueSetting) -> bool:
    """Return whether a listing shows the setting.

    Limits and access lists are shown only for the queue that sets them.
    """
    inherited = one.origin == inspect_pb2.SETTING_ORIGIN_INHERITED
    return not _is_default(one) and not (inherited and one.name in OF_PEOPLE)


def _numbers(queue: inspect_pb2.Queue) -> list[Column]:
    """Return columns with a row for each resource type that the queue uses, wants or has a limit for."""
    share = queue.proportional_share
    kinds = in_order((*queue.guaranteed, *queue.max, *queue.usage, *queue.pending, *share.deserved))
    kinds = [kind for kind in kinds if _says_something(queue, kind)] or ["vcore"]
    mappings: Iterable[tuple[str, Mapping[str, int], int]] = (
        ("guaranteed", queue.guaranteed, 1),
        ("deserves", share.deserved, 2),
        ("max", queue.max, 1),
        ("headroom", queue.head_room, 5),
        ("pending", queue.pending, 3),
        ("promised", queue.promised, 4),
        ("leaving", queue.releasing, 4),
    )
    return [
        Column("", [heading(kind) for kind in kinds]),
        Column("used", [amount(kind, queue.usage.get(kind, 0)) for kind in kinds], right=True),
        *(
            Column(name, [maybe(kind, values) for kind in kinds], gives_way, right=True)
            for name, values, gives_way in mappings
            if any(values.get(kind) for kind in kinds)
        ),
    ]


def _says_something(queue: inspect_pb2.Queue, kind: str) -> bool:
    limited = kind in queue.guaranteed or kind in queue.max
    return limited or bool(queue.usage.get(kind) or queue.pending.get(kind))
