"""The reader of `queues.yaml`, which returns a configuration or the problems of the text (design 1.11)."""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from server.config import document, hierarchy, limits, lint, preemption, rules, shape, tree
from server.config.codes import CODES, unknown
from server.config.partial import sound_part
from server.config.problems import Path, Problem, Reporter
from server.model.quota import (
    QUEUES_MAX,
    Configuration,
    NodeSort,
    PartitionSpec,
    ReservationSettings,
)


class Loaded(NamedTuple):
    """The result of reading a text: its configuration and its problems. A text with an error has no configuration."""

    configuration: Configuration | None
    problems: list[Problem]
    silenced: list[Problem]
    """Warnings that the text itself silences (`ignorewarnings`)."""


def load(text: str, source: str = "") -> tuple[Configuration | None, list[Problem]]:
    """Return the configuration of a text, and its problems.

    The configuration is None if a problem is an error. This function raises no exceptions.

    ``source`` names the text in problems, such as the path of its file.
    """
    return examine(text, source)[:2]


def examine(text: str, source: str = "") -> Loaded:
    """Read a configuration as `load` does, and also return the silenced warnings."""
    reporter = Reporter(source)
    found = document.read(text, reporter)
    written = sound_part(found.value, found.unusable, reporter) if found else None
    partitions = _partitions(written, reporter) if written else ()
    silenced = sorted(reporter.silenced, key=lambda one: (one.line, one.code))
    if reporter.failed:
        return Loaded(None, reporter.result(), silenced)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Loaded(Configuration(partitions, text, digest), reporter.result(), silenced)


def _partitions(written: shape.File, reporter: Reporter) -> tuple[PartitionSpec, ...]:
    checked = []
    first: dict[str, int] = {}
    for number, partition in enumerate(written.partitions):
        where: Path = ("partitions", number)
        name = partition.name.lower()
        if name in first:
            reporter.error(
                (*where, "name"), f"there is a partition {name!r} already, in line {first[name]}"
            )
        first.setdefault(name, reporter.line((*where, "name")))
        _silence(partition, where, reporter)
        if (queues := _count(partition.queues)) > QUEUES_MAX:
            reporter.error(
                (*where, "queues"),
                f"has {queues:,} queues, the most that a partition takes are {QUEUES_MAX:,}",
                advice="let placement rules create queues as they are used (`create: true`), or use several partitions",
            )
            continue
        checked.append(_check(partition, where, reporter))
    if reporter.failed:
        return ()
    for one in checked:
        lint.lint(one, reporter)
    return tuple(_spec(one) for one in checked)


def _count(queues: Sequence[shape.Queue]) -> int:
    """Return the number of queues on all levels."""
    return sum(1 + _count(queue.queues) for queue in queues)


def _silence(partition: shape.Partition, where: Path, reporter: Reporter) -> None:
    """Silence warnings with the codes that a partition lists. A code that does not exist is an error."""
    for number, code in enumerate(partition.ignorewarnings):
        if code not in CODES:
            reporter.error((*where, "ignorewarnings", number), partial(unknown, code))
    reporter.silent[where] = frozenset(partition.ignorewarnings)


def _check(partition: shape.Partition, where: Path, reporter: Reporter) -> lint.Checked:
    """Report all errors of one partition. Return the partition with everything that later warnings depend on."""
    if partition.usergroupresolver is not None:
        message = "is not supported: the user and the groups come with each application and are not looked up"
        reporter.error((*where, "usergroupresolver"), message)
    root = tree.grow(partition, where, reporter)
    hierarchy.check(root, reporter)
    limits.apply(root, partition, where, reporter)
    read_rules = rules.rules(partition.placementrules, root, where, reporter)
    settings = preemption.settings(partition.preemption, (*where, "preemption"), reporter)
    return lint.Checked(partition, where, root, settings, read_rules)


def _spec(checked: lint.Checked) -> PartitionSpec:
    """Return the partition as the `PartitionSpec` from which the core builds its queues.

    If the file has weights of resource types, they replace the default weights.
    """
    name, sort = checked.written.name, checked.written.nodesortpolicy
    kept = checked.written.reservations
    weights = tuple(
        sorted((kind, weight) for kind, weight in sort.resourceweights.items() if weight)
    )
    if not sort.resourceweights:
        weights = PartitionSpec(name, checked.root.spec()).node_weights
    return PartitionSpec(
        name=name,
        root=checked.root.spec(),
        rules=checked.rules,
        node_sort=NodeSort(sort.type),
        node_weights=weights,
        preemption=checked.settings,
        reservations=ReservationSettings(kept.enabled, kept.timeout),
    )
