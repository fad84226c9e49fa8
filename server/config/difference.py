"""The differences between two configurations, queue by queue, as text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from server.config.preemption import FIELDS, OPPOSITE
from server.config.properties import PROPERTIES
from server.model.quota import (
    DEFAULT_PARTITION,
    ChildTemplate,
    Configuration,
    PartitionSpec,
    PlacementRule,
    PreemptionSettings,
    QueueProperties,
    QueueSpec,
)
from server.model.resources import Limit
from server.model.spelling import (
    acl_text,
    duration_text,
    quantity_text,
    user_limit_text,
    value_text,
)

Kind = Literal["added", "removed", "changed"]
Facts = Mapping[str, str]
"""The values of the fields of one queue, template or partition, as text."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. ``field`` is empty if the subject as a whole was added or removed.

    ``subject`` is like ``queue root.a`` or ``partition gpu``. ``consequence`` says what the change does to running pods.
    """

    kind: Kind
    subject: str
    field: str = ""
    before: str = ""
    after: str = ""
    consequence: str = ""

    def __str__(self) -> str:
        effect = f" ({self.consequence})" if self.consequence else ""
        if not self.field:
            return f"{self.subject} {self.kind}{effect}"
        return f"{self.subject}: {self.field} {self.before or 'not set'} -> {self.after or 'not set'}{effect}"


def diff(old: Configuration, new: Configuration) -> list[Change]:
    """Return all changes, sorted.

    Partitions are sorted by name. The settings of a partition come before its queues, which are sorted by path. The fields of a
    queue or partition are sorted by name.
    """
    before = {partition.name: partition for partition in old.partitions}
    after = {partition.name: partition for partition in new.partitions}
    changes: list[Change] = []
    for name in sorted({*before, *after}):
        changes += _partition(name, before.get(name), after.get(name))
    return changes


def _partition(name: str, old: PartitionSpec | None, new: PartitionSpec | None) -> Iterator[Change]:
    subject = f"partition {name}"
    if old is None:
        yield Change("added", subject)
    elif new is None:
        yield Change(
            "removed", subject, consequence="its queues stop: nothing is placed there any more"
        )
        return
    if old and new:
        yield from _fields(subject, _settings(old), _settings(new))
    before = dict(_queues(old.root, "root")) if old else {}
    after = dict(_queues(new.root, "root")) if new else {}
    for path in sorted({*before, *after}):
        where = (
            f"queue {path}" if name == DEFAULT_PARTITION else f"queue {path} of partition {name}"
        )
        yield from _queue(
            where,
            before.get(path),
            after.get(path),
            enforced=bool(new and new.preemption.quota_enabled),
        )


def _queue(
    subject: str, old: QueueSpec | None, new: QueueSpec | None, *, enforced: bool
) -> Iterator[Change]:
    if new is None:
        yield Change(
            "removed",
            subject,
            consequence="it drains: what runs there ends, new applications are refused",
        )
    elif old is None:
        yield Change("added", subject)
    else:
        for change in _fields(subject, _facts(old), _facts(new)):
            yield _with_consequence(change, old, new, enforced=enforced)


def _with_consequence(change: Change, old: QueueSpec, new: QueueSpec, *, enforced: bool) -> Change:
    kind = change.field.removeprefix("max.")
    if kind == change.field or not _is_lower(
        dict(old.max or ()).get(kind), dict(new.max or ()).get(kind)
    ):
        return change
    delay = new.properties.quota_delay_ms
    effect = "what runs above it stays until it ends"
    if enforced and delay:
        effect = f"what is above it after {duration_text(delay)} is preempted"
    return Change(change.kind, change.subject, change.field, change.before, change.after, effect)


def _is_lower(old: int | None, new: int | None) -> bool:
    return new is not None and (old is None or new < old)


def _fields(subject: str, old: Facts, new: Facts) -> Iterator[Change]:
    for name in sorted({*old, *new}):
        before, after = old.get(name, ""), new.get(name, "")
        if before != after:
            kind: Kind = "changed" if before and after else "added" if after else "removed"
            yield Change(kind, subject, name, before, after)


# As text --------------------------------------------------------------------------------------------------------


def _queues(queue: QueueSpec, path: str) -> Iterator[tuple[str, QueueSpec]]:
    yield path, queue
    for child in queue.children:
        yield from _queues(child, f"{path}.{child.name}")


def _facts(queue: QueueSpec) -> dict[str, str]:
    """Return the values of all fields of one queue, without the queues below it."""
    return {
        "kind": "parent" if queue.parent else "leaf",
        "weight": str(queue.weight),
        "maxapplications": str(queue.max_applications or ""),
        "submitacl": acl_text(queue.submit_acl),
        "adminacl": acl_text(queue.admin_acl),
        "limits": "; ".join(user_limit_text(entry) for entry in queue.limits),
        **_amounts("guaranteed", queue.guaranteed),
        **_amounts("max", queue.max),
        **_properties("", queue.properties),
        **_template(queue.template),
    }


def _template(template: ChildTemplate | None) -> dict[str, str]:
    if template is None:
        return {}
    return {
        "childtemplate.maxapplications": str(template.max_applications or ""),
        **_amounts("childtemplate.guaranteed", template.guaranteed),
        **_amounts("childtemplate.max", template.max),
        **(_written("childtemplate.", template.properties) if template.properties else {}),
    }


def _written(prefix: str, properties: QueueProperties) -> dict[str, str]:
    """Return the properties of a template that differ from their defaults. A new template is shown without default values."""
    usual = _properties(prefix, QueueProperties())
    return {
        name: fact for name, fact in _properties(prefix, properties).items() if usual[name] != fact
    }


def _settings(partition: PartitionSpec) -> dict[str, str]:
    return {
        "nodesortpolicy.type": partition.node_sort,
        "nodesortpolicy.resourceweights": " ".join(
            f"{kind}={_weight(weight)}" for kind, weight in partition.node_weights
        ),
        "placementrules": "; ".join(_rule(rule) for rule in partition.rules),
        **_preemption(partition.preemption),
        "reservations.enabled": value_text("enabled", partition.reservations.enabled),
        "reservations.timeout": value_text("timeout_ms", partition.reservations.timeout_ms),
    }


def _amounts(name: str, limit: Limit | None) -> dict[str, str]:
    return {f"{name}.{kind}": quantity_text(kind, amount) for kind, amount in limit or ()}


def _properties(prefix: str, properties: QueueProperties) -> dict[str, str]:
    """Return the effective properties, named as in the file."""
    facts = {
        name: value_text(field, getattr(properties, field))
        for name, (field, _) in PROPERTIES.items()
    }
    facts["application.sort.priority"] = "enabled" if properties.priority_sort else "disabled"
    return {prefix + name: fact for name, fact in facts.items()}


def _preemption(settings: PreemptionSettings) -> dict[str, str]:
    """Return the `preemption` section with its defaults, named as in the file."""
    live = {field: getattr(settings, field) for field in FIELDS.values()}
    facts: dict[str, str] = {}
    for prefix, values in (("", live), ("shadow.", settings.shadow)):
        facts |= {f"preemption.{prefix}{key}": value for key, value in as_written(values).items()}
    return facts


def as_written(values: Mapping[str, object]) -> dict[str, str]:
    """Return fields of `PreemptionSettings`, named and written as in the file."""
    return {
        ".".join(path): value_text(field, not values[field] if path in OPPOSITE else values[field])
        for path, field in FIELDS.items()
        if field in values
    }


def _rule(rule: PlacementRule) -> str:
    text = rule.kind + (f" {rule.value}" if rule.value else "") + (" create" if rule.create else "")
    if one := rule.filter:
        names = [*sorted(one.users), *sorted(one.groups), one.user_pattern, one.group_pattern]
        text += f" {'allow' if one.allow else 'deny'} {','.join(name for name in names if name)}"
    return f"{text} under ({_rule(rule.parent)})" if rule.parent else text


def _weight(weight: int) -> str:
    return f"{weight // 1_000}" if weight % 1_000 == 0 else f"{weight / 1_000:g}"
