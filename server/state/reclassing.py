"""The change of the gang classes (firm or lendable) of all asks after a change of the settings (J2).

Each tick reclassifies some asks, so that placements continue in the same ticks. Gang classes limit usage only while the policy
`job` is in the specification in force, because only then do queues have limiters of firm use (J4). If a specification adds the
policy, asks therefore get their classes before the specification comes into force. If a specification removes the policy, asks
lose their classes afterwards. If the policy stays, a specification can only change the class of asks that declare no class.
These asks get the new class after the specification came into force, and are limited by their earlier class until then.
``Partition.classed_by`` are the settings by which asks get their classes, and ``Partition.unclassed`` are the asks that may
still have a class of earlier settings.
"""

from typing import Final

from server.model.asks import AskSpec, gang_class, has_classes
from server.model.parts import PART, Parts
from server.model.quota import PreemptionSettings
from server.model.resources import NOTHING
from server.state import journal, reranking, usage
from server.state.applications import Ask, Group
from server.state.partition import Partition

STEP: Final = 1_000
"""The largest number of asks that one tick reclassifies. One ask takes about 8 us."""
SAMPLES: Final = tuple(AskSpec(NOTHING, lendable=one) for one in (None, False, True))
"""One spec for each class that owners may declare for a pod, and one spec without a declared class.

The settings decide whether a pod without a declared class is firm (J2).
"""


def are_alike(one: PreemptionSettings, other: PreemptionSettings) -> bool:
    """Return whether two settings give every ask the same class."""
    return all(gang_class(spec, one) is gang_class(spec, other) for spec in SAMPLES)


def is_due(partition: Partition, settings: PreemptionSettings) -> bool:
    """Return whether asks have to get their classes before these settings come into force.

    When all asks have their classes, the settings can come into force in little time.

    The result is True if the settings add classes.
    """
    if has_classes(partition.spec.preemption) or not has_classes(settings):
        return False
    return bool(partition.unclassed) or not are_alike(partition.classed_by, settings)


def advance(partition: Partition, settings: PreemptionSettings) -> None:
    """Give at most `STEP` asks the gang classes that the settings determine. New asks get these classes from now on."""
    if not are_alike(partition.classed_by, settings):
        begin(partition, settings)
    unclassed, is_bound = partition.unclassed, has_classes(partition.spec.preemption)
    for _ in range(min(STEP, len(unclassed))):
        ask = unclassed.pop()
        if partition.asks.get(ask.key) is ask:
            before, was_firm = ask.group, ask.ask_class.firm
            _reclassify(partition, ask)
            if is_bound and was_firm and not ask.ask_class.firm:
                usage.relieve_firm(partition, ask.application.leaf)
            if (
                isinstance(before, Group)
                and isinstance(ask.group, Group)
                and before is not ask.group
            ):
                _keep_told(partition, ask, before, ask.group)
    if not unclassed:
        partition.relief += 1  # work that waits for an ask of the new class may continue


def _keep_told(partition: Partition, ask: Ask, before: Group, after: Group) -> None:
    """Record, for an ask that moved from group ``before`` to group ``after``, that its reason for waiting was sent to the shim.

    The reason is still valid, because the limits have not changed.
    """
    after.told = after.told or before.told
    if ask.code and ask.code == after.told and after.untold and after.untold[-1] is ask:
        after.untold.pop()
        if not after.untold:
            partition.untold.pop(after, None)


def begin(partition: Partition, settings: PreemptionSettings | None) -> None:
    """Record that all asks have to get the classes of the given settings. None stands for the settings in force.

    `advance` then reclassifies the asks in order of arrival.
    """
    partition.class_settings = settings
    partition.classes.forget_specs()
    partition.unclassed = [*reversed(partition.asks.values())]


def reclass_in_parts(
    partition: Partition, before: PreemptionSettings, *, later: bool
) -> Parts[None]:
    """Give all asks the classes of the settings that came into force, if the classes of ``before`` were different.

    With ``later``, only record that this is to be done. The caller then calls `advance` in the next ticks.
    """
    now = partition.spec.preemption
    partition.class_settings = None
    if are_alike(before, now) and not partition.unclassed:
        return
    if later:
        begin(partition, None)
        return
    partition.unclassed = []
    partition.classes.forget_specs()
    # The heaps must have the new order before asks join them.
    yield from reranking.rebuild_in_parts(partition)
    for at, ask in enumerate(partition.asks.values()):
        if not at % PART:
            yield
        _reclassify(partition, ask)


def _reclassify(partition: Partition, ask: Ask) -> None:
    if ask.ask_class.gang_class is gang_class(ask.spec, partition.classed_by):
        return
    if ask.node is None:
        journal.reclassify(partition, ask)
    else:
        journal.reclassify_placed(partition, ask)
