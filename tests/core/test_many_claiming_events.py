"""Searches of several ticks decide what rounds decide that examine every group, whatever event makes a claim possible (G1, P3).

The stories have the events after which a claim may be met: freed capacity, changed nodes, quotas, guarantees and fences, asks and
pods with other values, vetoed victims, limits of users, gangs, and time alone.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from server.core.core import Core
from server.core.preemption import claim_chunks
from server.model.asks import AskSpec, Constraints
from server.model.decisions import Decision
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    ConfigurationApplied,
    Event,
    ForeignAdded,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    NodeUpdated,
    ReleaseRequested,
    VictimVetoed,
)
from server.model.quota import (
    Acl,
    Configuration,
    PartitionSpec,
    PreemptionPolicy,
    PreemptionSettings,
    QueueProperties,
    QueueSpec,
    ReservationSettings,
    UserLimit,
)
from server.model.resources import resource
from tests.core.test_many_claiming import NOW, PLAIN, ticks, without_reasons
from tests.effort import cases

KINDS = (
    PLAIN,
    replace(PLAIN, trigger="after", backoff_ms=3_000),
    replace(PLAIN, policies=("required-node", "guaranteed", "job", "in-queue")),
    replace(PLAIN, rounds_interval_ms=5_000, pace_permyriad=1_000, pace_window_ms=60_000),
    replace(PLAIN, entitlement="proportional"),
    replace(PLAIN, quota_enabled=True, expiry_ms=20_000),
)
LEAVES = ("a", "b", "c", "d", "p.x", "p.y")


class World:
    """A core with a manager that does what it is told, and random events drawn from a seed."""

    def __init__(self, seed: int, settings: PreemptionSettings) -> None:
        self.chance, self.now, self.number = random.Random(seed), NOW, 0
        self.settings = settings
        self.reserves = self.chance.random() < 0.3
        self.core = Core(self.configuration())
        self.tell(ManagerRegistered("rm"))
        for at in range(12):
            self.add_node(at)
        for leaf in LEAVES:
            for user in ("ann", "bob"):
                self.tell(ApplicationAdded("rm", f"{leaf}-{user}", f"root.{leaf}", user=user))
        for at in range(48):
            self.add(AskSpec(resource({"vcore": 1_000})), f"{'dc'[at % 2]}-ann")

    def tell(self, event: Event) -> None:
        """Give an event to the core."""
        self.core.handle(event, self.now)

    def add_node(self, at: int) -> None:
        """Register a node of 4 cores."""
        labels = (("zone", str(at % 3)),)
        self.tell(NodeAdded("rm", f"n{at}", resource({"vcore": 4_000}), labels=labels))

    def configuration(self) -> Configuration:
        """Return a configuration with random guarantees, limits and properties."""
        draw = self.chance.choice

        def properties() -> QueueProperties:
            policies = (PreemptionPolicy.DEFAULT,) * 4
            return QueueProperties(
                priority_offset=draw((0, 0, 0, 1)),
                preemption_policy=draw(
                    (*policies, PreemptionPolicy.FENCE, PreemptionPolicy.DISABLED)
                ),
                preemption_delay_ms=draw((0, 1_000, 30_000)),
                quota_delay_ms=draw((0, 2_000)),
            )

        def queue(name: str, guaranteed: tuple[int, ...]) -> QueueSpec:
            own, most = draw(guaranteed), draw((None, None, 9_000, 14_000))
            limits = (UserLimit(("ann",), max_resources=resource({"vcore": draw((3_000, 8_000))})),)
            return QueueSpec(
                name,
                guaranteed=resource({"vcore": own}) if own else (),
                max=None if most is None or most < own else resource({"vcore": most}),
                properties=properties(),
                limits=draw(((), limits)) if name != "d" else (),
            )

        below = (queue("x", (0, 0, 3_000)), queue("y", (0, 4_000)))
        own = draw((8_000, 12_000))
        parent = QueueSpec("p", parent=True, guaranteed=resource({"vcore": own}), children=below)
        tree = QueueSpec(
            "root",
            parent=True,
            submit_acl=Acl(everyone=True),
            children=(
                queue("a", (0, 8_000, 20_000)),
                queue("b", (4_000, 12_000)),
                queue("c", (0, 8_000)),
                QueueSpec("d"),
                parent,
            ),
        )
        return Configuration(
            (
                PartitionSpec(
                    "default",
                    tree,
                    reservations=ReservationSettings(enabled=self.reserves),
                    preemption=self.settings,
                ),
            )
        )

    def spec(self) -> AskSpec:
        """Return the values of a random ask."""
        draw = self.chance.choice
        size = draw((500, 1_000, 2_500, 3_950, 9_000)) + self.chance.randrange(5)
        constraints = Constraints(
            node_selector=draw(((), (), (("zone", draw("0123")),))),
            required_node=draw(("",) * 9 + ("n1",)),
        )
        return AskSpec(
            resource({"vcore": size}),
            priority=self.chance.randrange(3),
            constraints=constraints,
            allow_preempt_other=self.chance.random() < 0.8,
            allow_preempt_self=self.chance.random() < 0.8,
            lendable=draw((None, True, False)),
        )

    def add(self, spec: AskSpec, application: str) -> None:
        """Ask for one pod."""
        self.number += 1
        self.tell(AskAdded("rm", f"k{self.number}", application, spec))

    def placed(self) -> list[str]:
        """Return the keys of the pods that run."""
        asks = self.core.state.partitions["default"].asks
        return [key for key, one in asks.items() if one.node is not None]

    def waiting(self) -> list[str]:
        """Return the keys of the asks that wait."""
        asks = self.core.state.partitions["default"].asks
        return [key for key, one in asks.items() if one.node is None]

    def release(self, key: str) -> None:
        """Let a pod or an ask end."""
        ask = self.core.state.partitions["default"].asks[key]
        self.tell(ReleaseRequested("rm", ask.application.application_id, key))

    def update(self, key: str) -> None:
        """Give a pod or an ask other values."""
        ask = self.core.state.partitions["default"].asks[key]
        application = ask.application.application_id
        draw, spec = self.chance.random(), ask.spec
        if draw < 0.4:
            spec = replace(spec, allow_preempt_other=not spec.allow_preempt_other)
        elif draw < 0.7:
            spec = replace(spec, allow_preempt_self=not spec.allow_preempt_self)
        else:
            spec = self.spec()
        if ask.node is None:
            self.tell(AskAdded("rm", key, application, spec))
        else:
            self.tell(AllocationAdded("rm", key, application, ask.node.node_id, spec))

    def happen(self) -> None:
        """Let one random event happen."""
        pods, nodes = (self.come,) * 7 + (self.end,) * 3 + (self.change,) * 2, (self.node_stands,)
        draw = self.chance.choice
        draw(
            (
                *pods,
                *nodes,
                self.node_changes,
                self.node_goes,
                self.fill,
                self.configure,
                self.gang,
                self.leave,
            )
        )()

    def application(self) -> str:
        """Return a random application."""
        return f"{self.chance.choice(LEAVES)}-{self.chance.choice(('ann', 'bob'))}"

    def node(self) -> str:
        """Return a random node."""
        return f"n{self.chance.randrange(12)}"

    def come(self) -> None:
        """Ask for some pods of one application."""
        application = self.application()
        for _ in range(self.chance.randrange(5)):
            self.add(self.spec(), application)

    def end(self) -> None:
        """Let a pod end, or an ask."""
        known = self.chance.choice((self.placed, self.placed, self.waiting))()
        if known:
            self.release(self.chance.choice(known))

    def change(self) -> None:
        """Give a pod or an ask other values."""
        known = self.chance.choice((self.placed, self.waiting))()
        if known:
            self.update(self.chance.choice(known))

    def node_stands(self) -> None:
        """Drain or enable a node."""
        self.tell(self.chance.choice((NodeDrained, NodeEnabled))("rm", self.node()))

    def node_changes(self) -> None:
        """Give a node another label and capacity."""
        labels = (("zone", self.chance.choice("0123")),)
        capacity = resource({"vcore": self.chance.choice((3_000, 4_000, 6_000))})
        self.tell(NodeUpdated("rm", self.node(), capacity, labels=labels))

    def node_goes(self) -> None:
        """Remove a node. Most nodes come back."""
        node = self.node()
        self.tell(NodeRemoved("rm", node))
        if self.chance.random() < 0.7:
            self.add_node(int(node[1:]))

    def fill(self) -> None:
        """Let a pod run that the core did not place."""
        self.number += 1
        key, node = f"k{self.number}", self.node()
        if self.chance.random() < 0.5:
            self.tell(ForeignAdded("rm", key, node, resource({"vcore": 500})))
            return
        spec = replace(self.spec(), constraints=Constraints())
        self.tell(AllocationAdded("rm", key, self.application(), node, spec))

    def configure(self) -> None:
        """Apply another configuration."""
        is_one = self.chance.random() < 0.5
        self.tell(ConfigurationApplied(self.configuration(), "test", one_by_one=is_one))

    def gang(self) -> None:
        """Ask for the pods of a gang."""
        size, application = self.chance.choice((2, 3)), self.application()
        job = f"job-{self.number}"
        spec = AskSpec(resource({"vcore": 900}), gang_key=job, min_members=size)
        for _ in range(size):
            self.add(spec, application)

    def leave(self) -> None:
        """Let some victims end, and veto some."""
        leaving = [*self.core.state.partitions["default"].decisions.leaving]
        for key in leaving[: self.chance.randrange(5)]:
            if self.chance.random() < 0.2:
                self.tell(VictimVetoed("rm", "", key))
            else:
                self.release(key)

    def story(self) -> Iterator[list[str]]:
        """Yield the decisions of each instant."""
        yield self.decided()
        for _ in range(40):
            self.now += self.chance.choice((0, 100, 1_000, 3_000, 5_000, 30_000))
            for _ in range(self.chance.randrange(3)):
                self.happen()
            yield self.decided()

    def decided(self) -> list[str]:
        """Return the decisions of the present instant."""
        found: list[Decision] = list(ticks(self.core, self.now, 1_000))
        return [repr(one) for one in found]


@pytest.mark.parametrize("kind", range(len(KINDS)))
@pytest.mark.parametrize("seed", range(cases(20)))
def test_groups_that_are_left_out_of_a_search_have_no_claim(
    seed: int, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search takes no further tick here, so that both cores tick alike."""
    whole = [*World(seed, KINDS[kind]).story()]
    monkeypatch.setattr(claim_chunks, "_are_many", lambda _partition: True)
    several = [*World(seed, KINDS[kind]).story()]
    assert any(one.startswith("Placed") for some in whole for one in some)
    assert without_reasons(several) == without_reasons(whole)
