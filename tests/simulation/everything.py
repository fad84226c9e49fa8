"""Random partitions with every policy and setting, in the form of `queues.yaml` (docs/configuration.md).

Queue trees are one to four queues deep. Values that the checks of the file would refuse (a max below a guarantee,
contradicting sums) are not drawn, so that nearly every partition is accepted.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, get_args

from server.model.comparing import FIXED, Key

POLICIES: Final = ("required-node", "guaranteed", "job", "in-queue")
DEPTH_MOST: Final = 4
LEAVES_MOST: Final = 7
Section = dict[str, Any]
Amounts = dict[str, int]


@dataclass
class Shape:
    """A queue with the queues below it; the root's name is "root"."""

    name: str
    children: "list[Shape]" = field(default_factory=list)

    def leaves(self, above: str = "") -> Iterator[str]:
        """Yield the paths of the leaves."""
        path = f"{above}.{self.name}" if above else self.name
        if not self.children:
            yield path
        for child in self.children:
            yield from child.leaves(path)


def shape(dice: random.Random) -> Shape:
    """Return a tree with two to seven leaves."""
    while True:
        names = (f"q{number}" for number in count())
        depth = dice.choice((1, 2, 3, 3, DEPTH_MOST))
        found = Shape("root", _below(dice, depth, names))
        if 2 <= len(list(found.leaves())) <= LEAVES_MOST:
            return found


def _below(dice: random.Random, depth: int, names: Iterator[str]) -> list[Shape]:
    return [
        Shape(
            next(names), _below(dice, depth - 1, names) if dice.random() < 0.6 and depth > 1 else []
        )
        for _ in range(dice.choice((1, 2, 2, 3)))
    ]


# Queues -------------------------------------------------------------------------------------------------------------


def queues(dice: random.Random, tree: Shape, kinds: Sequence[str]) -> Section:
    """Return the root queue with everything below it."""
    needs: dict[int, Amounts] = {}
    _guarantee(dice, tree, kinds, needs)
    return _queue(dice, tree, {}, needs)


def _guarantee(
    dice: random.Random, tree: Shape, kinds: Sequence[str], needs: dict[int, Amounts]
) -> Amounts:
    """Add a guarantee for each queue to `needs`; return the sum of the guarantees of a queue and all queues below it."""
    sums = dict.fromkeys(kinds, 0)
    for child in tree.children:
        for kind, amount in _guarantee(dice, child, kinds, needs).items():
            sums[kind] += amount
    own: Amounts = {}
    if tree.name != "root" and dice.random() < (0.3 if tree.children else 0.65):
        more = 6 if tree.children else 12
        own = {kind: sums[kind] + dice.randint(0, more) for kind in kinds if dice.random() < 0.8}
    needs[id(tree)] = own
    return {**sums, **own}


def _queue(dice: random.Random, tree: Shape, above: Amounts, needs: dict[int, Amounts]) -> Section:
    own = needs[id(tree)]
    most: Amounts = {}
    if tree.name != "root" and dice.random() < 0.4:
        least = needed(tree, needs)
        drawn = {kind: max(2, amount) + dice.randint(0, 12) for kind, amount in least.items()}
        most = {kind: min(amount, above.get(kind, amount)) for kind, amount in drawn.items()}
    queue: Section = {"name": tree.name, "weight": dice.choice((1, 1, 2, 5))}
    queue["properties"] = properties(dice, leaf=not tree.children)
    resources = {"guaranteed": units(own), "max": units(most)}
    queue["resources"] = {name: amounts for name, amounts in resources.items() if amounts}
    if tree.name == "root":
        queue |= {"submitacl": "*", "resources": {}}
    elif dice.random() < 0.07:
        limit = units({"memory": min(dice.randint(4, 16), most.get("memory", 16))})
        queue["limits"] = [
            {"limit": "u", "users": [dice.choice(("ann", "bob"))], "maxresources": limit}
        ]
    below = [_queue(dice, child, {**above, **most}, needs) for child in tree.children]
    return {**queue, "queues": below} if below else queue


def needed(tree: Shape, needs: dict[int, Amounts]) -> Amounts:
    """Return what a queue must be able to use: its own guarantee or, for types without one, the sum of its children's."""
    sums: Amounts = dict.fromkeys(("memory", "vcore"), 0)
    for child in tree.children:
        for kind, amount in needed(child, needs).items():
            sums[kind] += amount
    return {**sums, **needs[id(tree)]}


def units(amounts: Amounts) -> Section:
    """Return amounts in the units of a configuration file: vcore in thousandths."""
    return {
        kind: f"{amount}m" if kind == "vcore" else amount
        for kind, amount in amounts.items()
        if amount
    }


def properties(dice: random.Random, *, leaf: bool) -> dict[str, str]:
    """Return the properties of a queue other than its amounts."""
    drawn: list[tuple[float, dict[str, str]]] = [
        (1.0, {"preemption.delay": dice.choice(("1s", "5s"))} if leaf else {}),
        (
            0.1 if leaf else 0.5,
            {"preemption.policy": "disabled" if dice.random() < 0.1 else "fence"},
        ),
        (0.2, {"priority.offset": str(dice.randint(-2, 2))}),
        (0.1, {"priority.policy": "fence"}),
        (0.6, {"quota.preemption.delay": dice.choice(("1s", "3s", "20s"))}),
        (0.2, {"quota.preemption.overshoot": "none"}),
        (0.2, {"quota.preemption.miss": "30%"}),
        (0.1, {"quota.preemption.shortfall": "abstain"}),
        (0.2, {"quota.preemption.timer": "keep-earliest"}),
        (0.15, {"preemption.minruntime": dice.choice(("5s", "2m"))}),
        (0.2, {"application.sort.policy": "fair"}),
        (0.2, {"application.sort.priority": "disabled"}),
    ]
    found: dict[str, str] = {}
    for chance, some in drawn:
        found |= some if dice.random() < chance else {}
    return found


# The section `preemption` -------------------------------------------------------------------------------------------


def preemption(dice: random.Random) -> Section:
    """Return the preemption section, perhaps with a shadow."""
    found = settings(dice)
    if dice.random() < 0.35:
        found["shadow"] = shadow(dice, found)
    return found


def settings(dice: random.Random) -> Section:
    """Return the preemption section without its shadow."""
    found: Section = {
        "enabled": dice.random() < 0.96,
        "quotapreemptionenabled": dice.random() < 0.85,
        "policies": policies(dice),
        "trigger": dice.choice(("before", "before", "after")),
        "equalpriority": dice.choice(("allow", "allow", "never", "ignore")),
        "disruptionbudgets": dice.choice(("prefer", "respect", "ignore")),
        "firmbreak": dice.random() < 0.3,
        "observeonly": dice.random() < 0.06,
        "backoff": dice.choice(("15s", "1s", "2s")),
        "expiry": dice.choice(("10m", "40s", "60s")),
        "delivery": dice.choice(("delete", "evict", "soft", "soft")),
        "crossnode": dice.choice(("never", "never", "quota")),
        "job": job(dice),
        "order": order(dice),
    }
    if dice.random() < 0.4:
        found["rounds"] = {"interval": dice.choice(("0s", "1s", "7s"))}
    if dice.random() < 0.4:
        found["pace"] = pace(dice)
    return found | (by_weight(dice) if dice.random() < 0.45 else {})


def policies(dice: random.Random) -> list[str]:
    """Return policies in random order, mostly all of them."""
    found = [one for one in POLICIES if dice.random() < 0.9]
    dice.shuffle(found)
    return found


def by_weight(dice: random.Random) -> Section:
    """Return `entitlement: proportional` and the settings that belong to it (W2, W8)."""
    demand_cap = dice.random() < 0.6
    trigger = dice.choice(("before", "after")) if demand_cap else "after"
    overshoot = "last" if trigger == "after" and dice.random() < 0.4 else "none"
    proportion = {"demandcap": demand_cap, "overshoot": overshoot}
    return {"entitlement": "proportional", "trigger": trigger, "proportion": proportion}


def job(dice: random.Random) -> Section:
    """Return `preemption.job`, the settings of the policy `job`."""
    found: Section = {
        "disableDefaultPreemptiable": dice.random() < 0.25,
        "disableDefaultTriggerPreemption": dice.random() < 0.2,
        "victimgang": dice.choice(("whole", "avoid")),
    }
    if dice.random() < 0.5:
        found["podShouldBeDeletedWhenPreempted"] = dice.random() < 0.5
    return found


def order(dice: random.Random) -> Section:
    """Return `preemption.order`: the keys after the fixed keys (V2)."""
    found = {}
    for name, fixed in FIXED.items():
        if dice.random() < 0.25:
            rest = [key for key in get_args(Key) if key not in fixed]
            found[name] = dice.sample(rest, dice.randint(1, 3))
    return found


def pace(dice: random.Random) -> Section:
    """Return `preemption.pace` with budgets that are small enough to matter.

    The natural termination factor (P9) comes from a separate generator, so that this key does not change the other
    random values.
    """
    aside = random.Random()
    aside.setstate(dice.getstate())
    found = {
        "perround": dice.choice(("0%", "0.01%", "10%", "25%")),
        "perqueue": dice.choice(("0%", "0%", "0.01%", "15%")),
        "perapplication": dice.choice(("0%", "0%", "15%")),
        "window": dice.choice(("0s", "0s", "5s", "30s")),
        "deadzone": dice.choice(("0%", "0%", "0%", "25%")),
    }
    part = random.Random(f"natural {aside.random()}").choice(("0%", "0%", "10%", "40%", "100%"))
    return found | ({"naturaltermination": part} if part != "0%" else {})


def shadow(dice: random.Random, live: Section) -> Section:
    """Return settings of a shadow, some of which differ from the live settings."""
    other = settings(dice)
    differing = [key for key in other if other[key] != live.get(key)]
    chosen = dice.sample(differing, min(len(differing), dice.randint(1, 4)))
    if "proportion" in chosen or "entitlement" in chosen:
        return {key: other[key] for key in chosen} | by_weight(dice)
    return {key: other[key] for key in chosen if key != "trigger"}


def amounts(written: Section) -> Amounts:
    """Return the amounts from which `units` made this section."""
    return {kind: int(str(amount).removesuffix("m")) for kind, amount in written.items()}
