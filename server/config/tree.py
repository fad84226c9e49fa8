"""The queues of one partition as drafts: names, structure, amounts and properties.

Later checks compare the drafts with each other.

A draft contains its path in the file, so that later checks can name the line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from server.config import shape
from server.config.problems import Path, Reporter
from server.config.properties import own_values
from server.config.quantities import quantity
from server.model.quota import (
    PROPERTY_FIELDS,
    QUOTA_DELAY,
    ROOT,
    ChildTemplate,
    PreemptionPolicy,
    QueueProperties,
    QueueSpec,
    UserLimit,
    inherited,
)
from server.model.resources import limit, resource

SECOND_MS: Final = 1_000


@dataclass(slots=True)
class Template:
    """A child template with its amounts as numbers. ``own`` has the properties that the template sets."""

    guaranteed: dict[str, int]
    maximum: dict[str, int]
    max_applications: int
    own: dict[str, Any]

    def below(self, properties: QueueProperties, owner: str) -> ChildTemplate:
        """Return the template for dynamic leaves below a queue with these properties.

        ``owner`` is the queue that has the template.
        """
        return ChildTemplate(
            guaranteed=resource(self.guaranteed),
            max=limit(self.maximum) if self.maximum else None,
            max_applications=self.max_applications,
            properties=replace(inherited(properties), **self.own),
            queue=owner,
            own=_named(self.own),
        )


@dataclass(slots=True)
class Draft:
    """One queue of the file. ``own`` has the properties that the queue sets itself.

    ``properties`` adds inherited and default values.
    """

    shape: shape.Queue
    where: Path
    path: str
    above: "Draft | None" = None
    guaranteed: dict[str, int] = field(default_factory=dict)
    maximum: dict[str, int] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    properties: QueueProperties = field(default_factory=QueueProperties)
    template: Template | None = None
    limits: list[UserLimit] = field(default_factory=list)
    limits_where: Path = ()
    children: list["Draft"] = field(default_factory=list)

    @property
    def leaf(self) -> bool:
        """Return whether the queue can have applications."""
        return not (self.children or self.shape.parent or self.above is None)

    @property
    def quota_delay_where(self) -> Path:
        """The path of this queue's quota delay in the file."""
        section = "properties" if QUOTA_DELAY in self.shape.properties else "resources"
        return (*self.where, section, QUOTA_DELAY)

    def walk(self) -> Iterator["Draft"]:
        """Yield the queue and all queues below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def path_up(self) -> Iterator["Draft"]:
        """Yield the queue and all queues above it, up to the root."""
        draft: Draft | None = self
        while draft is not None:
            yield draft
            draft = draft.above

    def spec(self) -> QueueSpec:
        """Return the queue and its children as the `QueueSpec` from which the core builds its queues."""
        written = self.shape
        return QueueSpec(
            name=written.name if self.above else ROOT,
            parent=not self.leaf,
            guaranteed=resource(self.guaranteed),
            max=limit(self.maximum) if self.maximum else None,
            weight=written.weight,
            max_applications=written.maxapplications,
            properties=self.properties,
            submit_acl=written.submitacl,
            admin_acl=written.adminacl,
            limits=tuple(self.limits),
            template=None if self.leaf else self._template(),
            children=tuple(child.spec() for child in self.children),
            raw_properties=dict(written.properties),
            own=_named(self.own),
        )

    def _template(self) -> ChildTemplate | None:
        for draft in self.path_up():
            if draft.template:
                return draft.template.below(self.properties, draft.path)
        return None


def grow(partition: shape.Partition, where: Path, reporter: Reporter) -> Draft:
    """Return the tree of a partition. If the file begins with the queues below the root, a root is inserted."""
    where = (*where, "queues")
    tops = partition.queues
    if len(tops) == 1 and tops[0].name == ROOT:
        return _draft(tops[0], (*where, 0), None, reporter)
    for number, top in enumerate(tops):
        if top.name == ROOT:
            reporter.error(
                (*where, number, "name"),
                "root must be the only queue at the top; put the others below it",
            )
    return _draft(shape.Queue(name=ROOT, queues=list(tops)), where, None, reporter)


def _draft(written: shape.Queue, where: Path, above: Draft | None, reporter: Reporter) -> Draft:
    path = f"{above.path}.{written.name}" if above else ROOT
    draft = Draft(written, where, path, above)
    draft.guaranteed = _guaranteed(written.resources, where, reporter)
    draft.maximum = amounts(written.resources.max, (*where, "resources", "max"), reporter)
    draft.own = _own(written.properties, written.resources, where, reporter)
    draft.properties = replace(
        inherited(above.properties) if above else QueueProperties(), **draft.own
    )
    if above is None:
        draft.properties = replace(draft.properties, preemption_policy=PreemptionPolicy.DEFAULT)
        _check_root(draft, reporter)
    draft.template = _template(draft, reporter)
    draft.children = _children(draft, reporter)
    return draft


def _children(draft: Draft, reporter: Reporter) -> list[Draft]:
    """Return the queues below a queue. Below an inserted root these are the queues that the partition lists."""
    inserted = draft.above is None and draft.where[-1] == "queues"
    where = draft.where if inserted else (*draft.where, "queues")
    first: dict[str, int] = {}
    for number, child in enumerate(draft.shape.queues):
        line = reporter.line((*where, number, "name"))
        if child.name in first:
            message = f"there is a queue {child.name!r} at this level already, in line {first[child.name]}"
            advice = "rename one of them, or write the two as one"
            reporter.error((*where, number, "name"), message, advice=advice)
        first.setdefault(child.name, line)
    return [
        _draft(child, (*where, number), draft, reporter)
        for number, child in enumerate(draft.shape.queues)
    ]


def _check_root(root: Draft, reporter: Reporter) -> None:
    for key in ("guaranteed", "max"):
        if getattr(root.shape.resources, key):
            message = "root takes no resources: it has what the registered nodes have"
            advice = "remove it, or move it to a queue below root"
            reporter.error((*root.where, "resources", key), message, advice=advice)


def amounts(written: Mapping[str, str], where: Path, reporter: Reporter) -> dict[str, int]:
    """Return quantities by type. A quantity that cannot be read is reported and left out."""
    read: dict[str, int] = {}
    for kind, text in written.items():
        try:
            read[kind] = quantity(kind, text)
        except ValueError as fault:
            reporter.error((*where, kind), str(fault))
    return read


def _guaranteed(written: shape.Resources, where: Path, reporter: Reporter) -> dict[str, int]:
    """Return the guarantee without amounts of 0, which mean no guarantee (G2)."""
    read = amounts(written.guaranteed, (*where, "resources", "guaranteed"), reporter)
    return {kind: amount for kind, amount in read.items() if amount}


def _named(own: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of properties in the file that set these fields of `QueueProperties`."""
    return frozenset(name for name, field_name in PROPERTY_FIELDS.items() if field_name in own)


def _own(
    written: Mapping[str, str], sizes: shape.Resources, where: Path, reporter: Reporter
) -> dict[str, Any]:
    """Return the properties that a queue or template sets, with the quota delay, which may be in two places of the file (Q2)."""
    values = own_values(written, (*where, "properties"), reporter)
    if sizes.quota_delay_s is not None:
        if QUOTA_DELAY in written:
            message = f"{QUOTA_DELAY} is written under properties too; keep one of them"
            reporter.error((*where, "resources", QUOTA_DELAY), message)
        values["quota_delay_ms"] = sizes.quota_delay_s * SECOND_MS
    return values


def _template(draft: Draft, reporter: Reporter) -> Template | None:
    written = draft.shape.childtemplate
    if written is None:
        return None
    where = (*draft.where, "childtemplate")
    return Template(
        guaranteed=_guaranteed(written.resources, where, reporter),
        maximum=amounts(written.resources.max, (*where, "resources", "max"), reporter),
        max_applications=written.maxapplications,
        own=_own(written.properties, written.resources, where, reporter),
    )
