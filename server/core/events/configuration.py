"""The application of a valid configuration (design 1.11).

The configuration that was sent last wins, unless it is based on an outdated revision.

A manager sends its configuration again in each of its sessions. If another configuration was applied since the manager's
previous session, the manager's configuration comes into force again only if its text has changed since that session.
"""

from collections.abc import Iterator
from typing import Final

from server.core.events.lifecycle import removed_note
from server.core.preemption import due_quota, open_decisions
from server.core.state import Left, State
from server.core.wait_reasons import reservations
from server.model.decisions import Decision, Noted
from server.model.events import ConfigurationApplied, ManagerRegistered
from server.model.parts import PART, Parts
from server.model.phrases import count
from server.model.quota import Configuration, PartitionSpec
from server.model.reasons import Code
from server.model.revisions import Base, Revision
from server.state import reclassing, tree
from server.state.partition import Partition
from server.state.prepared import Prepared

PAST_MAX: Final = 8
PAST_CHARACTERS_MAX: Final = 1 << 18
"""The limit on the total length, in characters, of the earlier configurations that are kept for comparisons.

PAST_MAX limits the number of these configurations.
"""
GIVEN_MAX: Final = 256
"""The largest number of managers for which the digest of the last configuration text is stored.

The oldest digest is dropped first.
"""

PUT_OFF_FROM: Final = 5_000
"""If a partition has at least this many queues and applications, the first tick after a new configuration does nothing but
place asks.

A search for claims among 5,000 queues and applications takes 20 ms.
"""


def change(state: State, event: ConfigurationApplied, now: int) -> Parts[list[Decision]]:
    """Apply a configuration in parts, or return the reply that says why the present configuration stays in force."""
    refused = would_refuse(state, event)
    if event.rm_id and not is_stale(state, event):
        _note_given(state, event.rm_id, event.configuration.digest)
    if refused:
        return refused
    revision = Revision(
        state.revision.number + 1,
        event.configuration.digest,
        event.source,
        event.by,
        now,
        standing=bool(event.rm_id),
    )
    return (
        yield from _replace(state, event.configuration, revision, now, one_by_one=event.one_by_one)
    )


def change_next(state: State, now: int) -> Parts[list[Decision]]:
    """Do the next step of the first change in `State.outdated`: the change of a partition to the configuration in force.

    Return the decisions to report about that step.
    """
    name, left = next(iter(state.outdated.items()))
    partition, notes = state.partitions[name], list[Decision]()
    spec = state.configuration.partition(name)
    assert spec is not None, "a partition that is no longer configured is retired at once"
    if left.before is not None:
        state.outdated[name] = Left(is_in_force=True)
        notes = yield from due_quota.configured(state, partition, left.before, now)
    elif left.is_in_force or reclassing.is_due(partition, spec.preemption):
        reclassing.advance(partition, spec.preemption)
    else:
        notes = yield from _change_first(state, partition, spec, now)
    _drop_complete(state, partition)
    for one in state.partitions.values():
        one.round.is_put_off |= _is_large(one)
    return notes


def complete(state: State, partition: Partition, now: int) -> Parts[list[Decision]]:
    """Do, in parts, all remaining steps of the change of a partition to the configuration in force.

    Return the decisions to report.
    """
    left = state.outdated.pop(partition.name, None)
    if left is None:
        return []
    notes: list[Decision] = []
    if left.before is not None:
        notes = yield from due_quota.configured(state, partition, left.before, now)
    return [*notes, *(yield from adapt(state, partition, now))]


def prepare(state: State, configuration: Configuration) -> Iterator[None]:
    """Make, in pieces, the partitions and queues that a configuration adds (see `Prepared`).

    Applying the configuration then takes less time.

    Other events may be handled between two pieces. Afterwards the caller calls `drop_prepared`, whether or not it has applied
    the configuration.
    """
    state.prepared = {}
    for spec in state.own(configuration):
        partition = state.partitions.get(spec.name)
        if partition is not None:
            prepared = state.prepared[spec.name] = Prepared(partition, spec)
            yield from prepared.make()
            continue
        prepared = state.prepared[spec.name] = Prepared(Partition(spec), spec)
        yield from tree.apply_spec_in_parts(prepared.partition, spec)
        prepared.is_applied = True


def drop_prepared(state: State) -> Iterator[None]:
    """Free, in pieces, the prepared objects that were not used, and the queues and partitions that the configuration removed."""
    dropped, state.prepared = state.prepared, {}
    for name, prepared in dropped.items():
        yield from prepared.drop()
        if state.partitions.get(name) is not prepared.partition:
            yield from untie(prepared.partition)
    while state.ended:
        yield from untie(state.ended.pop())


def would_refuse(state: State, event: ConfigurationApplied) -> list[Decision]:
    """Return the reply to a configuration that would not come into force.

    Return an empty list if the configuration would come into force.
    """
    if is_stale(state, event):
        message = (
            f"it was made from {event.base}, and {state.revision.without_source()} is in force"
        )
        code = Code.CONFIGURATION_STALE
        return [Noted("configuration", event.source, code, message, "", event.rm_id)]
    if event.rm_id and not counts(state, event.rm_id, event.configuration.digest):
        return [_overtaken(state, "configuration", event.source, event.rm_id)]
    return []


def is_stale(state: State, event: ConfigurationApplied) -> bool:
    """Return whether a configuration is based on a revision that is no longer in force.

    Return False for a configuration that equals the configuration in force.
    """
    is_there = event.configuration.digest == state.revision.digest
    return event.base.is_stale(state.revision) and not is_there


def register(
    state: State, event: ManagerRegistered, configuration: Configuration, now: int
) -> Parts[list[Decision]]:
    """Apply the configuration of a registration in parts, or return the reply that says why the configuration in force stays in force."""
    rm_id = event.rm_id
    is_used = counts(state, rm_id, configuration.digest)
    _note_given(state, rm_id, configuration.digest)
    if not is_used:
        return [_overtaken(state, "manager", rm_id, rm_id)]
    source = f"registration of {rm_id}"
    revision = Revision(state.revision.number + 1, configuration.digest, source, event.by, now)
    return (yield from _replace(state, configuration, revision, now, one_by_one=event.one_by_one))


def counts(state: State, rm_id: str, digest: str) -> bool:
    """Return whether a configuration text that a manager sends in each of its sessions comes into force.

    If the manager sent the same text in its previous session, the text does not replace a configuration that was applied since
    that session. If the manager sent no text before, the core cannot detect whether the text has changed. Then a configuration
    that an operator applied stays in force.
    """
    if not digest or digest == state.revision.digest:
        return True
    known = state.given.get(rm_id)
    return state.revision.standing if known is None else known != digest


def _overtaken(state: State, kind: str, subject: str, rm_id: str) -> Noted:
    message = (
        f"this configuration is not used: {state.revision.without_source()} stays in force until this text (on Kubernetes "
        "the ConfigMap) is changed"
    )
    return Noted(kind, subject, Code.CONFIGURATION_REFUSED, message, "", rm_id)


def past(state: State, base: Base) -> Configuration | None:
    """Return the configuration of the revision that ``base`` names, by a digest or, if there is no digest, by a number.

    Return None if that configuration is not stored.
    """
    for number, configuration in [
        *state.past.items(),
        (state.revision.number, state.configuration),
    ]:
        if configuration.digest == base.digest if base.digest else number == base.number:
            return configuration
    return None


def _replace(
    state: State, configuration: Configuration, revision: Revision, now: int, *, one_by_one: bool
) -> Parts[list[Decision]]:
    """Apply a configuration as a revision.

    If the text of the configuration equals that of the configuration in force, the revision stays the same, and the
    configuration is applied again.
    """
    if not _is_same(state.configuration, configuration):
        _keep_past(state)
        state.revision = revision
    return (yield from _apply(state, configuration, revision.source, now, one_by_one=one_by_one))


def _is_same(one: Configuration, other: Configuration) -> bool:
    return one.digest == other.digest if one.digest else one == other


def _keep_past(state: State) -> None:
    """Store the configuration in force for later comparisons. Drop the oldest stored configurations above the limits."""
    kept = [*state.past.items(), (state.revision.number, state.configuration)][-PAST_MAX:]
    while sum(len(one.text) for _, one in kept) > PAST_CHARACTERS_MAX:
        del kept[0]
    state.past = dict(kept)


def _note_given(state: State, rm_id: str, digest: str) -> None:
    if state.given.get(rm_id) == digest or not digest:
        return
    others = [(name, known) for name, known in state.given.items() if name != rm_id]
    state.given = dict([*others, (rm_id, digest)][-GIVEN_MAX:])


def _apply(
    state: State, configuration: Configuration, source: str, now: int, *, one_by_one: bool
) -> Parts[list[Decision]]:
    """Change every partition as the configuration says.

    Partitions that the configuration no longer lists are stopped, and are removed when they are empty.

    With ``one_by_one``, at most one of the partitions that exist already is changed now: the first of them, and only if its
    asks keep their gang classes. The next ticks change the other existing partitions (`change_next`). Partitions that are new,
    or that are listed again, are changed at once.
    """
    notes = yield from _set_timers(state, now)
    state.configuration = configuration
    state.outdated = {}
    own = state.own(configuration)
    named = {spec.name: spec for spec in own}
    for spec in own:
        partition = state.partitions.get(spec.name)
        if partition is None:
            yield from state.add_partition_of(spec)
            continue
        if partition.retired:
            tree.restart(partition)
        elif one_by_one:
            state.outdated[spec.name] = Left()
            continue
        notes += yield from _change(state, partition, spec, now)
    first = next(iter(state.outdated), "")
    if first and _keeps_classes(state.partitions[first], named[first]):
        notes += yield from _change_first(state, state.partitions[first], named[first], now)
        _drop_complete(state, state.partitions[first])
    for name, partition in list(state.partitions.items()):
        if name not in named:
            yield
            notes += _retire(partition)
    yield from drop_retired(state)
    message = f"configuration from {source} applied, {count(len(named), 'partition')}, revision {state.revision.number}"
    notes.append(Noted("configuration", source, Code.CONFIGURATION_APPLIED, message))
    return notes


def _set_timers(state: State, now: int) -> Parts[list[Decision]]:
    """Update, in parts, the timers of quota runs in each partition of `State.outdated` whose timers are still to be updated.

    Return the notes to send.
    """
    notes: list[Decision] = []
    for name, left in state.outdated.items():
        if left.before is not None:
            partition = state.partitions[name]
            notes += yield from due_quota.configured(state, partition, left.before, now)
    return notes


def adapt(state: State, partition: Partition, now: int) -> Parts[list[Decision]]:
    """Apply the configuration in force to a partition that was created under another configuration."""
    spec = state.configuration.partition(partition.name)
    if spec is None:
        return _retire(partition)
    if partition.retired:
        tree.restart(partition)
    return (yield from _change(state, partition, spec, now))


def _keeps_classes(partition: Partition, spec: PartitionSpec) -> bool:
    """Return whether, under the specification, all asks keep the gang classes (firm or lendable) that they have now."""
    return not partition.unclassed and reclassing.are_alike(partition.classed_by, spec.preemption)


def _change(
    state: State, partition: Partition, spec: PartitionSpec, now: int
) -> Parts[list[Decision]]:
    """Put a specification into force in a partition, and make all further changes that follow."""
    before = partition.spec
    notes = yield from _bring(state, partition, spec, now, classes_later=False)
    notes += yield from due_quota.configured(state, partition, before, now)
    yield
    return notes + reservations.configured(state, partition, before, now)


def _change_first(
    state: State, partition: Partition, spec: PartitionSpec, now: int
) -> Parts[list[Decision]]:
    """Put a specification into force in a partition.

    Leave the other steps of a large partition to the next ticks (`change_next`).
    """
    before = partition.spec
    notes = yield from _bring(state, partition, spec, now, classes_later=True)
    partition.thrashing.reset()
    if _is_large(partition):
        state.outdated[partition.name] = Left(is_in_force=True, before=before)
    else:
        state.outdated[partition.name] = Left(is_in_force=True)
        notes += yield from due_quota.configured(state, partition, before, now)
    yield
    return notes + reservations.configured(state, partition, before, now)


def _drop_complete(state: State, partition: Partition) -> None:
    """End the change of a partition if no step of the change is left."""
    left = state.outdated[partition.name]
    if left.is_in_force and left.before is None and not partition.unclassed:
        del state.outdated[partition.name]


def _bring(
    state: State, partition: Partition, spec: PartitionSpec, now: int, *, classes_later: bool
) -> Parts[list[Decision]]:
    """Change the queues, the limits and the order of asks to those of a specification. Return notes about removed queues."""
    removed = yield from tree.apply_spec_in_parts(
        partition, spec, state.prepared_for(spec), classes_later=classes_later
    )
    partition.relief += 1
    partition.round.is_put_off = _is_large(partition)
    yield
    open_decisions.abort_unfit(partition, now)
    return [removed_note(partition, path) for path in removed]


def drop_retired(state: State) -> Parts[None]:
    """Remove, in parts, each empty partition that is no longer configured.

    A partition is empty if it has no nodes and no applications. After this call, no manager owns an empty partition, even if
    the partition is still configured.
    """
    for partition in list(state.partitions.values()):
        if partition.index.nodes or partition.applications:
            continue
        partition.owner = ""
        if partition.retired:
            del state.partitions[partition.name]
            state.leaving.pop(partition.name, None)
            if state.prepared:
                state.ended.append(partition)
            else:
                yield from untie(partition)


def untie(partition: Partition) -> Parts[None]:
    """Free, in parts, the memory of the queues of a removed partition, children first.

    Garbage collection does not free this memory (`rpc/garbage`).
    """
    for at in range(len(partition.queues)):
        if not at % PART:
            yield
        _, queue = partition.queues.popitem()
        queue.untie()
        if queue.parent is not None:
            del queue.parent.children[queue.name]


def _is_large(partition: Partition) -> bool:
    """Return whether the partition is large.

    Until the change of a large partition to a new configuration is complete, its ticks do nothing but place asks.
    """
    return len(partition.queues) + len(partition.applications) >= PUT_OFF_FROM


def _retire(partition: Partition) -> list[Decision]:
    """Stop a partition that is no longer configured. The partition is removed when it is empty."""
    tree.stop(partition)
    message = "not configured any more: nothing is placed until it is empty or configured again"
    return [Noted("queue", "root", Code.QUEUE_DRAINING, message, partition.name)]
