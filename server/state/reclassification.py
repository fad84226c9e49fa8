"""The change of an ask's class when its avoided nodes change, or the settings that say which asks are firm (J2, design 1.8)."""

from server.state import pending, usage
from server.state.applications import Ask
from server.state.partition import Partition


def reclass(partition: Partition, ask: Ask) -> None:
    """Give a waiting ask its new class after a change of its avoided nodes or settings; it keeps its pledge."""
    pending.dequeue(partition, ask)
    before = ask.ask_class
    made = partition.class_of(ask.spec, partition.constraints_of(ask.spec, ask.key))
    if ask.pledge is not None:
        shared, made = made, partition.private_class(made)
        partition.leave_class(shared)
        made.pledge = ask.pledge
    ask.ask_class = made
    partition.leave_class(before)
    counted = ask.pledge is not None and not ask.pledge.replaces  # else its placeholder is
    if counted and before.firm is not made.firm:
        usage.hold_firm(ask.application.leaf, made.demand, 1 if made.firm else -1)
    pending.enqueue(partition, ask)


def reclass_placed(partition: Partition, ask: Ask) -> None:
    """Give an allocation its new class after a change of settings that may make it firm or lendable (J2)."""
    before, leaf = ask.ask_class, ask.application.leaf
    ask.ask_class = partition.class_of(ask.spec, before.constraints)
    partition.leave_class(before)
    if before.firm is not ask.ask_class.firm:
        usage.hold_firm(leaf, before.demand, 1 if ask.ask_class.firm else -1)
