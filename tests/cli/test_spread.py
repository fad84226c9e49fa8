"""Partitions on two groups of cores, as users have them: processes, a table, an embedded cluster with two partitions (design 7.6)."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from server.replication import saved
from shim_client.translate import labels
from tests.cli.clusters import deployment, node, write
from tests.cli.processes import address_of, running, until
from tests.cli.run import evenhand
from tests.cli.test_cluster import said
from tests.cli.test_embedded_restart import ALL, places
from tests.cli.test_shim_ends import logged

QUEUES = """\
partitions:
- name: default
  queues: [{name: root, submitacl: '*', queues: [{name: web}]}]
- name: gpu
  queues: [{name: root, submitacl: '*', queues: [{name: train}]}]
"""
ANY = "127.0.0.1:0"
NOWHERE = "127.0.0.1:1"


def cluster(folder: Path) -> Path:
    """Write a cluster with two nodes and one Deployment in each of two partitions."""
    in_gpu = {labels.PARTITION: "gpu"}
    machines = [node(f"{kind}-{at}") for kind in ("n", "g") for at in range(2)]
    web, train = (
        deployment("lab", name, replicas, "1", f"root.{name}")
        for name, replicas in (("web", 3), ("train", 2))
    )
    for one in machines:
        one["metadata"]["labels"] = in_gpu if one["metadata"]["name"].startswith("g") else {}
    train["spec"]["template"]["metadata"]["labels"] |= in_gpu
    return write(folder, [*machines, web, train], QUEUES)


def table(
    path: Path, a: str = NOWHERE, b: str = "127.0.0.1:2", owned: str = "gpu", *, revision: int = 0
) -> Path:
    """Write a table with two groups; `owned` is the partition of the second one."""
    path.write_text(
        f"cores:\n- {{name: a, addresses: ['{a}'], partitions: [default], revision: {revision}}}\n"
        f"- {{name: b, addresses: ['{b}'], partitions: [{owned}], revision: {2 * revision}}}\n"
    )
    return path


def serve(folder: Path, group: str, listen: str = ANY, *more: str) -> list[str]:
    spread = ["--cores", str(table(folder / "serving.yaml")), "--group", group]
    return ["serve", "--listen", listen, *spread, *more]


class Running(NamedTuple):
    """Two cores and a shim."""

    cores: list[Any]
    addresses: list[str]
    table: Path
    commands: str
    """The address for `evenhand cluster`."""


@contextmanager
def two_groups(folder: Path, more: Sequence[str] = ()) -> Iterator[Running]:
    """Run two cores and a shim until the block ends; all pods are placed when it begins."""
    logs = [folder / f"{name}.log" for name in "ab"]
    with (
        running(serve(folder, "a", ANY, *more), logs[0]) as one,
        running(serve(folder, "b", ANY, *more), logs[1]) as other,
    ):
        addresses = [address_of(core, log) for core, log in zip((one, other), logs, strict=True)]
        cores = table(folder / "cores.yaml", *addresses)
        joins = ["shim", "--cluster", str(cluster(folder / "cluster")), "--cores", str(cores)]
        state = ["--state", str(folder / "state"), "--cluster-listen", ANY]
        with running([*joins, *state], folder / "shim.log") as shim:
            commands = said(shim, "cluster commands at").split()[3]
            logged(folder / "shim.log", *ALL)
            yield Running([one, other], addresses, cores, commands)


def counts(addresses: Sequence[str]) -> list[int]:
    """Return how many allocations the core at each address has in all its partitions."""
    found = []
    for address in addresses:
        told = evenhand("partitions", "--core", address, "-o", "json").value()["partitions"]
        found.append(sum(int(one["counts"]["allocations"]) for one in told))
    return found


def test_each_core_has_its_partition_and_one_goes_on_without_the_other(tmp_path: Path) -> None:
    with two_groups(tmp_path) as spread:
        until(lambda: counts(spread.addresses) == [3, 2])
        first, second = spread.addresses
        assert [*places(first).values()]
        assert all(one.startswith("n") for one in places(first).values())
        refused = evenhand("queues", "--partition", "gpu", "--core", first)
        assert refused.code == 1
        assert "partition 'gpu' belongs to cores 'b', this is one of cores 'a'" in refused.err
        spread.cores[1].kill()
        spread.cores[1].wait()
        scale = ["cluster", "scale", "--namespace", "lab", "--address", spread.commands]
        for name in ("web", "train"):
            assert evenhand(*scale, f"deployment/{name}", "--replicas", "5").code == 0
        until(lambda: counts([first]) == [5])
        every = ("--cores", str(spread.table))
        for ask in (("queues",), ("queues", "--partition", "default"), ("nodes",)):
            shown = evenhand(*ask, *every)
            assert (shown.code, "missing" in shown.err) == (0, False), shown.err
        assert evenhand("queues", "--partition", "gpu", *every).code == 3
        assert evenhand("partitions", *every).code == 3
        with running(serve(tmp_path, "b", second), tmp_path / "again.log") as again:
            assert address_of(again, tmp_path / "again.log") == second
            until(lambda: counts(spread.addresses) == [5, 5])


def names(*command: str, key: str, spread: Running) -> list[str]:
    """Return the names of the rows that a command shows of all groups."""
    rows = evenhand(*command, "--cores", str(spread.table), "-o", "json").value()[key]
    return [one.get("name") or one.get("node_id") or one["allocation_key"] for one in rows]


def look_at_positions(every: Sequence[str], kept: dict[str, Any]) -> None:
    """Ask for states that each group has shown, and for one that a group does not reach."""
    seen = {name: f"{one['position']}@{one['term']}" for name, one in kept.items()}
    known = ",".join(f"{name}={one}" for name, one in seen.items())
    assert evenhand("partitions", *every, "--at-least", known).code == 0
    far = ("--at-least", f"a={seen['a']},b=999999999@{seen['b'].partition('@')[2]}")
    assert evenhand("queues", *every, *far).code == 0
    refused = evenhand("queues", "--partition", "gpu", *every, *far)
    assert (refused.code, refused.out) == (1, "")
    for wrong in ("7", "c=7", "a=7,a=8"):
        told = evenhand("partitions", *every, "--at-least", wrong)
        assert (told.code, "groups: a, b" in told.err) == (2, True)
    told = evenhand("partitions", *every, "--at-least", "a=x")
    assert (told.code, "`x` is not a position" in told.err) == (2, True)


def test_commands_show_one_picture_of_all_groups(tmp_path: Path) -> None:
    with two_groups(tmp_path) as spread:
        until(lambda: counts(spread.addresses) == [3, 2])
        every = ("--cores", str(spread.table))
        assert names("partitions", key="partitions", spread=spread) == ["default", "gpu"]
        assert names("nodes", key="nodes", spread=spread) == ["n-0", "n-1"]
        gpu = ("--partition", "gpu")
        assert names("nodes", *gpu, key="nodes", spread=spread) == ["g-0", "g-1"]
        assert len(names("allocations", *gpu, key="allocations", spread=spread)) == 2
        shown = evenhand("queues", *gpu, *every)
        assert (shown.code, "train" in shown.out) == (0, True)
        assert "g-1  node  partition gpu" in evenhand("explain", "g-1", *every).out
        unknown = evenhand("explain", "nothing", *every)
        assert "nothing" in unknown.out + unknown.err
        assert evenhand("decisions", *every).code == 0
        assert evenhand("decisions", "g-1", *every).code == 1
        healthy = evenhand("health", *every)
        assert (healthy.code, healthy.out.count("manager")) == (0, 1)
        assert evenhand("doctor", *every).code == 0
        assert evenhand("version", *every).code == 0
        told = evenhand("replication", *every).out
        assert told.index("cores a:") < told.index("cores b:")
        kept = evenhand("replication", *every, "-o", "json").value()["cores"]
        assert [one["state"] for one in kept.values()] == ["leader", "leader"]
        look_at_positions(every, kept)
        events = evenhand("events", *every, "-o", "json").out
        assert '"partition": "gpu"' in events
        refused = evenhand("follow", *every)
        assert (refused.code, "only one core can be followed" in refused.err) == (2, True)


def test_a_configuration_comes_into_force_in_all_groups_or_in_none(tmp_path: Path) -> None:
    changed = tmp_path / "changed.yaml"
    changed.write_text(
        QUEUES.replace("{name: train}", "{name: train, resources: {max: {vcore: 3}}}")
    )
    with two_groups(tmp_path) as spread:
        every = ("--cores", str(spread.table))
        applied = evenhand("config", "apply", str(changed), *every)
        assert (applied.code, "in force in the cores of all groups" in applied.err) == (0, True)
        for address in spread.addresses:
            assert "vcore: 3" in evenhand("config", "show", "--core", address).out
        assert evenhand("config", "diff", str(changed), *every).code == 0
        spread.cores[1].kill()
        spread.cores[1].wait()
        changed.write_text(QUEUES)
        refused = evenhand("config", "apply", str(changed), *every)
        assert refused.code == 3
        assert "cores b, partitions: gpu" in refused.err
        assert "vcore: 3" in evenhand("config", "show", *every).out


def test_a_group_that_is_away_is_named_and_the_others_answer(tmp_path: Path) -> None:
    with two_groups(tmp_path) as spread:
        spread.cores[1].kill()
        spread.cores[1].wait()
        every = ("--cores", str(spread.table))
        for command in (["partitions"], ["doctor"], ["events"], ["decisions"]):
            ended = evenhand(*command, *every)
            assert (ended.code, ended.err.count("cores b are missing in this answer")) == (3, 1)
        assert "default" in evenhand("partitions", *every).out
        assert evenhand("nodes", *every).code == 0
        owner = evenhand("queues", "--partition", "gpu", *every)
        assert (owner.code, "cores b, partitions: gpu" in owner.err) == (3, True)
        told = evenhand("replication", *every)
        assert (told.code, "cores b: cannot reach the core" in told.out) == (3, True)
    nobody = evenhand("partitions", "--cores", str(table(tmp_path / "none.yaml")))
    assert nobody.code == 3
    both = evenhand("partitions", "--cores", str(table(tmp_path / "none.yaml")), "--core", NOWHERE)
    assert (both.code, "cannot be combined" in both.err) == (2, True)


def test_a_server_name_needs_tls_at_several_groups_too(tmp_path: Path) -> None:
    cores = ("--cores", str(table(tmp_path / "cores.yaml")))
    ended = evenhand("partitions", *cores, "--tls-server-name", "core")
    assert (ended.code, "--tls-server-name has no effect without --tls-ca" in ended.err) == (
        2,
        True,
    )


def test_a_partition_moves_when_the_table_is_changed_and_all_are_restarted(tmp_path: Path) -> None:
    joins = ["shim", "--cluster", str(cluster(tmp_path / "cluster"))]
    ran = []
    for revision, owned, expected, code in ((1, "gpu", [3, 2], 1), (2, "nothing", [5, 0], 0)):
        serving = table(tmp_path / "serving.yaml", owned=owned, revision=revision)
        with ExitStack() as stack:
            addresses = []
            for name in "ab":
                folder, log = tmp_path / name, tmp_path / f"{owned}-{name}.log"
                folder.mkdir(exist_ok=True)
                spread = ["--cores", str(serving), "--group", name, "--state-dir", str(folder)]
                if name == "a" and owned == "nothing":
                    spread += ["--moved-from", str(tmp_path / "b" / saved.NAME)]
                core = stack.enter_context(running(["serve", "--listen", ANY, *spread], log))
                addresses.append(address_of(core, log))
            cores = table(
                tmp_path / "cores.yaml", addresses[0], addresses[1], owned, revision=revision
            )
            more = ["--cores", str(cores), "--state", str(tmp_path / "state")]
            stack.enter_context(running([*joins, *more], tmp_path / f"{owned}-shim.log"))
            until(partial(has, addresses, expected))
            ran.append(placements(cores))
            asked = evenhand("nodes", "--partition", "gpu", "--core", addresses[0])
            assert asked.code == code
    assert len(ran[0]) == 5
    assert ran[0] == ran[1]
    old = ["--cores", str(table(tmp_path / "old.yaml", revision=1)), "--group", "b"]
    refused = evenhand("serve", "--listen", ANY, *old, "--state-dir", str(tmp_path / "b"))
    assert refused.code == 2
    assert "the group has revision 2 in this table, and had revision 4 before" in refused.err


def has(addresses: Sequence[str], expected: list[int]) -> bool:
    """Return whether the cores have these numbers of allocations."""
    return counts(addresses) == expected


def placements(cores: Path) -> dict[str, tuple[str, int]]:
    """Return the node of each pod of both partitions, and since when the core counts it there.

    A core that did not place a pod itself counts it from the start that the shim reports.
    """
    found = {}
    for partition in ("default", "gpu"):
        asked = ("allocations", "--partition", partition, "--cores", str(cores), "-o", "json")
        for one in evenhand(*asked).value()["allocations"]:
            found[one["allocation_key"]] = one["node_id"], int(one["since_ms"])
    return found


def test_wrong_groups_and_tables_are_refused(tmp_path: Path) -> None:
    good = str(table(tmp_path / "good.yaml"))
    bad = tmp_path / "bad.yaml"
    bad.write_text("cores: [{name: a, addresses: [x:1], partitions: [p, p]}]\n")
    none = tmp_path / "none.yaml"
    none.write_text("groups: []\n")
    below = table(tmp_path / "below.yaml", revision=-1)
    for options, says in (
        (["--moved-from", "/nowhere/state"], "--moved-from has no effect without --cores"),
        (
            ["--cores", good, "--group", "a", "--moved-from", "/nowhere/state"],
            "--moved-from: /nowhere/state: there is no such file",
        ),
        (["--cores", good, "--group", "c"], "the table has no group `c`"),
        (["--cores", good], "--cores needs --group"),
        (["--group", "a"], "--group has no effect without --cores"),
        (["--cores", str(bad), "--group", "a"], "partition `p` is named more than once"),
        (["--cores", str(none), "--group", "a"], "cores: Field required"),
        (["--cores", str(below), "--group", "a"], "revision: Input should be greater than"),
        (["--cores", "/nowhere/cores.yaml", "--group", "a"], "cannot read /nowhere/cores.yaml"),
    ):
        ended = evenhand("serve", *options)
        assert ended.code in (1, 2)
        assert says in ended.err


def test_a_shim_takes_a_table_or_addresses(tmp_path: Path) -> None:
    good = str(table(tmp_path / "good.yaml"))
    joins = ["shim", "--cluster", str(cluster(tmp_path / "cluster")), "--cores", good]
    ended = evenhand(*joins, "--core", NOWHERE)
    assert (ended.code, "--cores and --core cannot be combined" in ended.err) == (2, True)
    ended = evenhand(*joins, "--no-wait", "--state", str(tmp_path / "state"))
    assert ended.code == 3
