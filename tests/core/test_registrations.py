"""Which manager's configuration is used (design 1.11), and the answer to a registration."""

from server.core.core import Core
from server.model.decisions import Noted
from server.model.events import ManagerRegistered
from server.model.quota import Acl, Configuration, PartitionSpec, QueueSpec
from server.model.reasons import Code

NOW = 1_700_000_000_000


def configuration(*leaves: str) -> Configuration:
    children = tuple(QueueSpec(name=leaf) for leaf in leaves)
    root = QueueSpec(name="root", parent=True, submit_acl=Acl(everyone=True), children=children)
    return Configuration((PartitionSpec("default", root),))


def register(core: Core, rm_id: str, brought: Configuration | None) -> dict[Code, str]:
    notes = core.handle(ManagerRegistered(rm_id, configuration=brought, by="anna"), NOW)
    return {one.code: one.message for one in notes if isinstance(one, Noted)}


def queues(core: Core) -> set[str]:
    return {queue.name for queue in core.state.partitions["default"].root.children.values()}


def test_the_first_registration_configures() -> None:
    core = Core()
    assert register(core, "quiet", None)[Code.MANAGER_REGISTERED].endswith("'quiet' registered")
    assert Code.CONFIGURATION_APPLIED in register(core, "one", configuration("a"))
    assert queues(core) == {"a"}


def test_anothers_registration_does_not_and_says_so() -> None:
    core = Core()
    register(core, "one", configuration("a"))
    notes = register(core, "two", configuration("b"))
    assert queues(core) == {"a"}
    assert (
        "revision 2 by anna (2023-11-14 22:13:20 UTC) is in force"
        in notes[Code.CONFIGURATION_REFUSED]
    )
    assert Code.MANAGER_REGISTERED in notes


def test_the_same_manager_may_come_back_with_another() -> None:
    core = Core()
    register(core, "one", configuration("a"))
    register(core, "one", configuration("b"))
    assert queues(core) == {"b"}


def test_a_file_wins_over_every_registration() -> None:
    core = Core(configuration("a"))
    notes = register(core, "one", configuration("b"))
    assert queues(core) == {"a"}
    assert Code.CONFIGURATION_APPLIED not in notes
