"""The settings of a queue, and the place in the configuration from which each setting comes."""

from collections.abc import Iterator, Mapping
from typing import Final

from server.core.queries.reach import is_disabled
from server.model.queue_settings import Origin, SettingReport, SettingsReport
from server.model.quota import (
    NOBODY,
    PREEMPTION_DELAY,
    PROPERTY_FIELDS,
    QUOTA_DELAY,
    ROOT,
    Acl,
    ChildTemplate,
    QueueProperties,
)
from server.model.resources import Limit
from server.model.spelling import acl_text, quantity_text, user_limit_text, value_text
from server.state.partition import Partition
from server.state.queues import Queue

PREEMPTION_POLICY: Final = "preemption.policy"
OWN_ALONE: Final = frozenset({"priority.policy", "priority.offset", PREEMPTION_DELAY})
"""The properties that a queue does not inherit (see `inherited`)."""
NO_LIMIT: Final = "no limit"


def settings_report(partition: Partition, queue: Queue) -> SettingsReport:
    """Return the settings of one queue, each with its origin, in the order in which the configuration page lists them."""
    return SettingsReport(
        queue.path,
        queue.leaf,
        queue.managed,
        tuple(_settings(partition, queue)),
    )


def _settings(partition: Partition, queue: Queue) -> Iterator[SettingReport]:
    spec = queue.spec
    yield from _amounts(queue, "guaranteed", spec.guaranteed)
    yield from _amounts(queue, "max", spec.max)
    yield SettingReport(
        "weight", str(spec.weight), *_origin(queue, "weight", written=spec.weight != 1)
    )
    most = str(spec.max_applications) if spec.max_applications else NO_LIMIT
    yield SettingReport(
        "maxapplications",
        most,
        *_origin(queue, "maxapplications", written=spec.max_applications > 0),
    )
    for name in PROPERTY_FIELDS:
        yield _property(partition, queue, name)
    for queue_above in queue.path_up():
        for entry in queue_above.spec.limits:
            yield SettingReport("limits", user_limit_text(entry), *_from(queue, queue_above))
    yield from _access(queue, "submitacl", {one: one.spec.submit_acl for one in queue.path_up()})
    yield from _access(queue, "adminacl", {one: one.spec.admin_acl for one in queue.path_up()})
    if spec.template is not None and not queue.leaf:
        yield from _template(queue, spec.template)


def _amounts(queue: Queue, name: str, amounts: Limit | None) -> Iterator[SettingReport]:
    origin, owner = _origin(queue, name, written=True)
    for kind, amount in amounts or ():
        text = quantity_text(kind, amount)
        yield SettingReport(f"{name}.{kind}", text, origin, owner, "", kind, amount)


def _origin(queue: Queue, name: str, *, written: bool) -> tuple[Origin, str]:
    """Return the origin of a setting that configured queues do not inherit."""
    if name in queue.spec.tagged:
        return Origin.TAG, ""
    if not written:
        return Origin.DEFAULT, ""
    made_from = queue.spec.origin
    return (Origin.TEMPLATE, made_from.queue) if made_from else (Origin.HERE, "")


def _from(queue: Queue, owner: Queue) -> tuple[Origin, str]:
    return (Origin.HERE, "") if owner is queue else (Origin.INHERITED, owner.path)


# Properties -----------------------------------------------------------------------------------------------------


def _property(partition: Partition, queue: Queue, name: str) -> SettingReport:
    field = PROPERTY_FIELDS[name]
    value = getattr(queue.spec.properties, field)
    text = value_text(field, value)
    if field == "priority_sort":
        text = "enabled" if value else "disabled"
    origin, owner = _property_origin(queue, name)
    return SettingReport(name, text, origin, owner, _without_effect(partition, queue, name))


def _property_origin(queue: Queue, name: str) -> tuple[Origin, str]:
    """Return the origin of a property: the queue, its template, or the nearest ancestor from which it is inherited."""
    spec = queue.spec
    if name in spec.own:
        return Origin.HERE, ""
    if spec.origin is not None and name in spec.origin.own:
        return Origin.TEMPLATE, spec.origin.queue
    for above in queue.parent.path_up() if queue.parent and name not in OWN_ALONE else ():
        if name in above.spec.own:
            handed_down = name != PREEMPTION_POLICY or is_disabled(above)
            return (Origin.INHERITED, above.path) if handed_down else (Origin.DEFAULT, "")
    return Origin.DEFAULT, ""


def _without_effect(partition: Partition, queue: Queue, name: str) -> str:
    """Return why a property has no effect, or has an effect only in some cases.

    Return "" if the property has its full effect, or if it has its default value. There is one exception: if root sets
    `preemption.policy` to its default value, a text is returned nevertheless.
    """
    if getattr(queue.spec.properties, PROPERTY_FIELDS[name]) == getattr(
        QueueProperties(), PROPERTY_FIELDS[name]
    ):
        return _root_policy(queue, name)
    settings = partition.spec.preemption
    if name == PREEMPTION_DELAY and not queue.leaf:
        return "counts on leaves alone"
    if name == PREEMPTION_DELAY and settings.entitlement == "proportional":
        return "counts for policy in-queue alone, because shares go by weight"
    if name == QUOTA_DELAY and not settings.quota_enabled:
        return "no effect: preemption.quotapreemptionenabled is not true"
    if name == QUOTA_DELAY and not queue.managed:
        return "no effect on a dynamic queue"
    return ""


def _root_policy(queue: Queue, name: str) -> str:
    if name == PREEMPTION_POLICY and queue.path == ROOT and name in queue.spec.own:
        return "what root sets has no effect"
    return ""


# People and templates -------------------------------------------------------------------------------------------


def _access(queue: Queue, name: str, lists: Mapping[Queue, Acl]) -> Iterator[SettingReport]:
    """Yield the access lists that admit users to this queue: its own list and the lists of its ancestors."""
    found = [(one, acl) for one, acl in lists.items() if acl != NOBODY]
    for one, acl in found:
        yield SettingReport(name, acl_text(acl), *_from(queue, one))
    if not found:
        yield SettingReport(name, "nobody", Origin.DEFAULT)


def _template(queue: Queue, template: ChildTemplate) -> Iterator[SettingReport]:
    """Yield the settings with which a dynamic leaf below this queue starts."""
    owner = (
        (Origin.HERE, "") if template.queue == queue.path else (Origin.INHERITED, template.queue)
    )
    for name, amounts in (("guaranteed", template.guaranteed), ("max", template.max)):
        for kind, amount in amounts or ():
            text = quantity_text(kind, amount)
            yield SettingReport(f"childtemplate.{name}.{kind}", text, *owner, "", kind, amount)
    if template.max_applications:
        yield SettingReport("childtemplate.maxapplications", str(template.max_applications), *owner)
    if template.properties is not None:
        for name in sorted(template.own):
            field = PROPERTY_FIELDS[name]
            text = value_text(field, getattr(template.properties, field))
            yield SettingReport(f"childtemplate.{name}", text, *owner)
