"""A checked configuration comes into force: last applied wins (design 1.11)."""

from server.books import tree
from server.books.partition import Partition
from server.core import quota, reservations, victims
from server.core.lifecycle import removed_note
from server.core.state import State
from server.model.decisions import Decision, Noted
from server.model.phrases import count
from server.model.quota import Configuration
from server.model.reasons import Code


def apply(state: State, configuration: Configuration, source: str, now: int) -> list[Decision]:
    """Change every partition to what the configuration says; partitions that are gone stop and drain."""
    state.configuration = configuration
    state.source = source
    state.applied_ms = now
    named = {spec.name: spec for spec in configuration.partitions}
    notes: list[Decision] = []
    for spec in configuration.partitions:
        partition = state.partitions.get(spec.name)
        if partition is None:
            state.add_partition_of(spec.name)
            continue
        partition.retired = False
        notes += _change(state, partition, configuration, now)
    for name, partition in list(state.partitions.items()):
        if name not in named:
            notes += _retire(partition)
    drop_retired(state)
    message = f"configuration from {source} applied, {count(len(named), 'partition')}"
    notes.append(Noted("configuration", source, Code.CONFIGURATION_APPLIED, message))
    return notes


def _change(
    state: State, partition: Partition, configuration: Configuration, now: int
) -> list[Decision]:
    spec = next(one for one in configuration.partitions if one.name == partition.name)
    before = partition.spec
    removed = tree.apply_spec(partition, spec)
    partition.relief += 1
    victims.abort_unfit(partition, now)
    notes = quota.configured(state, partition, before, now)
    notes += reservations.configured(state, partition, before, now)
    return [*(removed_note(partition, path) for path in removed), *notes]


def drop_retired(state: State) -> None:
    """An empty partition has no owner, and goes when it is not configured any more."""
    for partition in list(state.partitions.values()):
        if partition.index.nodes or partition.applications:
            continue
        partition.owner = ""
        if partition.retired:
            del state.partitions[partition.name]


def _retire(partition: Partition) -> list[Decision]:
    """A partition that is not configured any more stops; it goes when nothing is left in it."""
    tree.stop(partition)
    message = "not configured any more: nothing is placed until it is empty or configured again"
    return [Noted("queue", "root", Code.QUEUE_DRAINING, message, partition.name)]
