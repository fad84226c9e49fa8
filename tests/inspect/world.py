"""A core with some content, built event by event, for the tests of queries."""

from typing import Any

from server.core.core import Core
from server.model.asks import AskSpec, Constraints, HostPort
from server.model.decisions import Decision, Placed, Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    AskAdded,
    Event,
    ForeignAdded,
    ManagerRegistered,
    NodeAdded,
    ReleaseRequested,
)
from server.model.policies import RESERVATION
from server.model.quota import (
    Acl,
    Configuration,
    PartitionSpec,
    PlacementRule,
    QueueProperties,
    QueueSpec,
    SortPolicy,
    UserLimit,
)
from server.model.resources import resource
from server.state import journal
from server.state.commitments import Commitment, Pledge
from server.state.partition import Partition

START = 1_700_000_000_000
MANAGER = "rm"
OPEN = Acl(everyone=True)


def leaf(name: str, **rest: Any) -> QueueSpec:
    """Return a leaf queue."""
    return QueueSpec(name=name, **rest)


def parent(name: str, *children: QueueSpec, **rest: Any) -> QueueSpec:
    """Return a queue with queues below it."""
    return QueueSpec(name=name, parent=True, children=children, **rest)


def configuration(*queues: QueueSpec, **rest: Any) -> Configuration:
    """Return a configuration with one partition: all users may submit, and queues that a client names are created."""
    root = parent("root", *queues, submit_acl=OPEN)
    rules = (PlacementRule(kind="provided", create=True),)
    return Configuration((PartitionSpec(name="default", root=root, rules=rules, **rest),))


class World:
    """A core with one partition and one manager; only `wait` moves the clock."""

    def __init__(self, *queues: QueueSpec, explicit_sync: bool = False, **rest: Any) -> None:
        self.core = Core(configuration(*queues, **rest))
        self.now = START
        self.say(ManagerRegistered(MANAGER, "1.0", explicit_sync=explicit_sync))

    @property
    def partition(self) -> Any:
        """Return the state without its type, because tests damage it on purpose."""
        return self.core.state.partitions["default"]

    def say(self, event: Event) -> list[Decision]:
        """Send an event at the present instant and return the decisions."""
        return self.core.handle(event, self.now)

    def wait(self, milliseconds: int) -> None:
        """Move the clock."""
        self.now += milliseconds

    def node(self, name: str, vcore: int = 10, memory: int = 100, **rest: Any) -> None:
        """Add a node; `extra` has further resource types."""
        extra = rest.pop("extra", {})
        capacity = resource({"vcore": vcore, "memory": memory, **extra})
        self.say(NodeAdded(MANAGER, name, capacity, **rest))

    def application(self, name: str, queue: str = "root.a", **rest: Any) -> list[Decision]:
        """Add an application to a queue."""
        return self.say(ApplicationAdded(MANAGER, name, queue, **rest))

    def ask(
        self, key: str, application: str = "app", vcore: int = 1, **rest: Any
    ) -> list[Decision]:
        """Add or update an ask; `extra` has further resource types, other arguments are part of its spec."""
        return self.say(AskAdded(MANAGER, key, application, spec(vcore, **rest)))

    def allocation(
        self, key: str, node: str, application: str = "app", vcore: int = 1, **rest: Any
    ) -> list[Decision]:
        """Report an existing allocation."""
        started = rest.pop("started_ms", None)
        event = AllocationAdded(
            MANAGER, key, application, node, spec(vcore, **rest), started_ms=started
        )
        return self.say(event)

    def foreign(self, key: str, node: str, vcore: int = 1) -> list[Decision]:
        """Report a pod of another scheduler."""
        return self.say(ForeignAdded(MANAGER, key, node, resource({"vcore": vcore})))

    def release(
        self,
        key: str,
        application: str = "app",
        termination: Termination = Termination.STOPPED_BY_RM,
    ) -> list[Decision]:
        """Release an ask or allocation, as the shim would."""
        return self.say(ReleaseRequested(MANAGER, application, key, termination=termination))

    def tick(self) -> dict[str, str]:
        """Tick to the end; return which ask was placed on which node."""
        placed: dict[str, str] = {}
        while True:
            done = self.core.tick(self.now)
            placed |= {one.key: one.node_id for one in done.decisions if isinstance(one, Placed)}
            if not done.more:
                return placed


def spec(vcore: int = 1, **rest: Any) -> AskSpec:
    """Return the part of an ask that pods of one template share."""
    extra = rest.pop("extra", {})
    return AskSpec(resource({"vcore": vcore, **extra}), **rest)


def pledge(
    world: World,
    key: str,
    node: str,
    victims: tuple[str, ...] = (),
    policy: str = RESERVATION.name,
) -> None:
    """Promise capacity on a node to a waiting ask, as a reservation or a decision does."""
    state: Partition = world.partition
    ask = state.asks[key]
    commitment = Commitment(f"c-{key}", policy, world.now)
    demands = (ask.ask_class.demand, ask.ask_class.node_demand)
    journal.pledge(state, Pledge(commitment, ask, state.index.nodes[node], *demands))
    going = [state.asks[one] for one in victims]
    journal.order(state, commitment, going, commitment.created_ms, delivery="delete")


def crowd(**rest: Any) -> World:
    """Return a world with asks and allocations in every state.

    run-* are placed, full-* wait for a limit, huge-* have a class that fits no node, gang-* and crew-* are members of
    a job that gathers or does not fit, held-* have promised capacity, back-* were returned after a failed binding.
    """
    world = World(
        leaf(
            "a",
            max=(("vcore", 6),),
            limits=(UserLimit(users=("ann",), max_resources=(("gpu", 1),)),),
        ),
        parent(
            "p",
            leaf("b", properties=QueueProperties(sort_policy=SortPolicy.FAIR)),
            leaf("c", properties=QueueProperties(priority_offset=3)),
            max=(("vcore", 100),),
            guaranteed=(("vcore", 20),),
            properties=QueueProperties(priority_sort=False),
        ),
        **rest,
    )
    for number in range(1, 4):
        zone = (("zone", f"z{number}"),)
        world.node(f"n{number}", labels=zone, extra={"gpu": 2})
    world.node("n4", vcore=4, schedulable=False)
    world.application("app", "root.a", user="ann", groups=("devs",))
    world.application("fair", "root.p.b", user="bob")
    world.application("other", "root.p.b")
    world.application("deep", "root.p.c")
    _fill(world)
    world.release("back-1", "deep", Termination.SCHEDULING_FAILED_ON_RM)
    world.tick()
    pledge(world, "held-1", "n2", ("run-1",))
    journal.set_releasing(world.partition, world.partition.asks["run-1"], releasing=True)
    world.tick()
    return world


def _fill(world: World) -> None:
    zone = Constraints(node_selector=(("zone", "z1"),))
    port = Constraints(host_ports=(HostPort(80),))
    for number in range(1, 4):
        world.ask(f"run-{number}", vcore=2, priority=number)
        world.ask(f"port-{number}", "other", constraints=port)
        world.foreign(f"alien-{number}", f"n{number}")
    world.ask("back-1", "deep", constraints=zone)
    world.tick()
    for number in range(1, 4):
        world.ask(f"full-{number}", vcore=2)
        world.ask(f"gpu-{number}", vcore=0, extra={"gpu": 1})
        world.ask(f"huge-{number}", "fair", vcore=50, priority=number)
        world.ask(f"zone-{number}", "fair", constraints=zone)
        world.ask(f"gang-{number}", "deep", vcore=9, gang_key="gang", min_members=3)
    world.ask("port-4", "other", constraints=port)
    world.ask("crew-1", "other", vcore=9, gang_key="crew", min_members=9)
    world.ask("held-1", "deep", vcore=10)
    world.ask("held-2", "deep", vcore=10)
    world.tick()
