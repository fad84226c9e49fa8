"""Questions of a new user about the cluster of a company: one command answers each, on a terminal of 80 columns.

Every answer names rule, numbers and next step in at most 30 lines; the answer about a gang has at most 25. The
numbers are those of the list of questions; questions 8, 12, 14, 15, 17 and 20 are about history and are not here.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.processes import address_of, finished, running, until
from tests.questions import company

COLUMNS_MAX = 80
LINES_MAX = 30
GANG_LINES_MAX = 25
SETTLED_S_MAX = 600.0
WAITING = "waiting for "
"""The start of the line that a slow machine adds to the error stream."""
SETTLED = {"vision": 10, "web": 47, "data": 6, "edge": 8, "notebooks": 8, "system": 49}
"""Pods that run in a queue, once every pod has its node or its reason."""


@dataclass(frozen=True)
class Answer:
    """The output of one command, as a person sees it."""

    code: int
    text: str
    """Both streams, as a terminal shows them."""
    data: str
    """The output stream alone."""

    @property
    def lines(self) -> list[str]:
        """Return the lines as they are seen."""
        return [one.rstrip() for one in self.text.splitlines() if not one.startswith(WAITING)]

    @property
    def words(self) -> str:
        """Return the text in one line, each gap one blank."""
        return " ".join(" ".join(self.lines).split())

    def says(self, *facts: str) -> None:
        """Check that each fact is there, a regular expression over the words."""
        for one in facts:
            assert re.search(one, self.words), f"{one!r} is not in:\n{self.text}"

    def fits(self, lines: int = LINES_MAX) -> None:
        """Check that the answer was given, and is no longer and no wider than a person reads."""
        assert self.code == 0, self.text
        assert len(self.lines) <= lines, f"{len(self.lines)} lines:\n{self.text}"
        widest = max(self.lines, key=len)
        assert len(widest) <= COLUMNS_MAX, f"{len(widest)} columns: {widest}"


Ask = Callable[..., Answer]


@dataclass(frozen=True)
class Company:
    """The cluster of the company, as commands see it."""

    core: str
    folder: Path

    def ask(self, *arguments: str, lines: int = LINES_MAX) -> Answer:
        """Ask one question in a terminal of 80 columns; check the size of its answer."""
        given = (*arguments, "--core", self.core)
        ended = finished(*given, columns=COLUMNS_MAX, folder=self.folder)
        answer = Answer(ended.returncode, ended.stderr + ended.stdout, ended.stdout)
        answer.fits(lines)
        return answer

    def value(self, *arguments: str) -> Any:
        """Return the answer to one question as data."""
        given = (*arguments, "--core", self.core, "--output", "json")
        ended = finished(*given, folder=self.folder)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    def decisions(self, policy: str) -> list[dict[str, Any]]:
        """Return the decisions of a policy, the latest last."""
        return list(self.value("decisions", "--policy", policy)["decisions"])

    def waiting(self, application: str) -> str:
        """Return the name of a pod of an application that waits."""
        ended = finished("allocations", "--waiting", "-o", "name", "--core", self.core)
        return next(one for one in ended.stdout.splitlines() if f"/{application}-" in one)

    def queues_with(self, *changes: tuple[str, str]) -> str:
        """Return a file of queues in which some text is replaced."""
        text = company.QUEUES
        for before, after in changes:
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        name = "tomorrow.yaml"
        (self.folder / name).write_text(text)
        return name

    def manifest(self, *objects: dict[str, Any]) -> str:
        """Return a file with these objects."""
        name = "manifest.yaml"
        (self.folder / name).write_text(yaml.safe_dump_all(objects))
        return name


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """Serve the company's cluster until every pod has its node or its reason."""
    folder = tmp_path_factory.mktemp("company")
    files = company.write(folder / "cluster")
    serve = ["serve", "--listen", "127.0.0.1:0"]
    with running(serve, folder / "serve.log") as process:
        address = address_of(process, folder / "serve.log")
        shim = ["shim", "--cluster", str(files), "--core", address]
        with running(shim, folder / "shim.log"):
            found = Company(address, folder)
            _await_settled(found)
            yield found


def _await_settled(found: Company) -> None:
    """Wait until each queue of `SETTLED` runs its pods and no decision is open."""

    def is_settled() -> bool:
        ended = finished("queues", "-o", "json", "--core", found.core)
        seen = dict(_running(json.loads(ended.stdout)["root"])) if not ended.returncode else {}
        settled = seen.items() >= SETTLED.items()
        return settled and not found.value("decisions", "--open")["decisions"]

    until(is_settled, SETTLED_S_MAX)


def _running(queue: dict[str, Any]) -> Iterator[tuple[str, int]]:
    yield queue["name"], queue["allocations"]
    for child in queue["children"]:
        yield from _running(child)


# Waiting pods ---------------------------------------------------------------------------------------------------------


def test_1_why_is_my_pod_waiting(cluster: Company) -> None:
    told = cluster.ask("explain", cluster.waiting("api"))
    told.says("no-node", "6 cores", r"root.prod.web \w+ 202 cores\D+200 cores")
    told.says(r"over-guarantee|closed-type", r"do: .*add a node with 6 cores", "24 short of cores")


def test_1_why_is_a_pod_of_my_deployment_waiting(cluster: Company) -> None:
    told = cluster.ask("explain", "team-a/a-app")
    told.says("6 pods, 1 waiting", "root.tenants.team-a has no headroom", r"10/10 \(0\)")
    told.says(r"do: raise the max of queue root.tenants.team-a by 2 cores")


def test_13_why_is_this_gang_partial(cluster: Company) -> None:
    told = cluster.ask("explain", cluster.waiting("bigtrain"), lines=GANG_LINES_MAX)
    told.says("6 needed, 6 wait", r"headroom for 0 of the 6 and lacks 44 (nvidia.com/)?gpu")
    told.says("gang-partial", "job-over-max", "gpu-01", "next try")
    told.says(r"do: raise the max of queue root.research.vision by 24 (nvidia.com/)?gpu")


def test_19_why_does_the_pod_of_the_daemonset_not_start(cluster: Company) -> None:
    told = cluster.ask("explain", cluster.waiting("profiler"))
    told.says("node gpu-01, the only one it may run on, lacks 7.1 cores", "no-covering-victims")
    told.says("do: wait until 7.1 cores more are free", r"9 higher-priority|8 higher-priority")


# Evicted pods ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["guaranteed", "job", "required-node"])
def test_2_why_was_it_evicted(cluster: Company, policy: str) -> None:
    decided = cluster.decisions(policy)[-1]
    (victim, *_), (asked, *_) = decided["victims"], decided["beneficiaries"]
    told = cluster.ask("explain", victim["name"])
    told.says(f"evicted from queue {victim['queue']}", victim["node_id"], decided["decision_id"])
    told.says(rf"policy {policy}\): ", asked["queue"], r"held .*\d+ .* of \d+ .*guaranteed")
    told.says(f"do: evenhand explain {victim['queue']}", "number 1 of|number 2 of")


@pytest.mark.parametrize("policy", ["guaranteed", "job", "required-node"])
def test_3_who_got_its_place(cluster: Company, policy: str) -> None:
    decided = cluster.decisions(policy)[-1]
    (victim, *_), (asked, *_) = decided["victims"], decided["beneficiaries"]
    told = cluster.ask("decisions", decided["decision_id"])
    told.says(f"for {asked['name']}", victim["name"], rf"policy {policy}, decided")
    told.says(r"priority \d+", "the ask has its place", "do: evenhand decisions .* --all")


def test_10_why_this_victim_and_not_that(cluster: Company) -> None:
    decided = cluster.decisions("guaranteed")
    evicted = {one["name"] for found in decided for one in found["victims"]}
    told = cluster.ask("explain", "night/b-001")
    assert "night/b-001" not in evicted
    told.says("root.batch.etl", decided[-1]["decision_id"], r"night/b-00[23]", r"\(key: \w+")
    (last, *_) = decided[-1]["victims"]
    told = cluster.ask("decisions", decided[-1]["decision_id"])
    told.says(
        last["name"],
        r"number \d of \d candidates; the next (that is not evicted|candidate) is night/b-\d+",
    )
    told.says(r"\(key: [\w-]+\)", r"stay .*\d+ (of root|candidates by \d+ rules)")


# Other configurations and asks ----------------------------------------------------------------------------------------

MAX = ("max: {vcore: 800, memory: 4Ti}", "max: {vcore: 440, memory: 4Ti}")
GUARANTEE = (
    ("guaranteed: {vcore: 200, memory: 400Gi}", "guaranteed: {vcore: 220, memory: 400Gi}"),
    ("guaranteed: {vcore: 400, memory: 2Ti}", "guaranteed: {vcore: 420, memory: 2Ti}"),
)
WEIGHTED = ("shadow: {entitlement: proportional}", "entitlement: proportional")


@pytest.mark.parametrize("command", ["simulate config FILE", "config apply FILE --dry-run"])
def test_4_what_would_a_guarantee_do(cluster: Company, command: str) -> None:
    file = cluster.queues_with(*GUARANTEE)
    told = cluster.ask(*command.replace("FILE", file).split())
    told.says(
        r"^\d pods? of root.batch\S*.* would be evicted", "in favour of 3 asks of root.prod.web"
    )
    told.says(r"shop/api-\w+-\w+", r"night/b-\d+", "guaranteed", "is over its guarantee")
    told.says(r"root.prod.web .*200 -> 220", "config apply|nothing was applied", "assumed")


def test_4_what_would_a_lower_max_do(cluster: Company) -> None:
    told = cluster.ask("config", "apply", cluster.queues_with(MAX), "--dry-run")
    told.says(
        "pods of root.batch.adhoc and root.batch.etl would be evicted within 2 m 00 s",
        "root.batch within its max",
    )
    told.says(r"2 m 00 s quota", r"night/b-\d+", r"root.batch cores \d+ 4(3\d|40)", "assumed")
    told.says(r"max.vcore: 800 -> 440", "nothing was applied")


def test_18_what_would_weighted_shares_do(cluster: Company) -> None:
    told = cluster.ask("simulate", "config", cluster.queues_with(WEIGHTED))
    told.says("would be evicted", r"root.batch cores \d+ \d+ .*-> 5\d\d", "deserves", "assumed")


def test_18_what_does_the_shadow_decide(cluster: Company) -> None:
    told = cluster.ask("decisions", "--shadow")
    told.says(
        "entitlement proportional", r"only-live", r"root.prod.web", "guaranteed (live|shadow)"
    )
    told.says(r"\d+ asks, \d+ of them differ")


def gpu_job(name: str, queue: str, *, gang: bool) -> dict[str, Any]:
    """Return a Job of eight pods of four GPUs, placed together or each by itself."""
    requests = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"}
    found = company.gang(name, 8, queue, requests, [company.GPU_TAINT], {})
    if not gang:
        labels = found["spec"]["template"]["metadata"]["labels"]
        for key in [one for one in labels if one.startswith("pod-group")]:
            del labels[key]
    return found


def test_5_what_if_i_submit_a_gang_of_eight_pods_of_four_gpus(cluster: Company) -> None:
    file = cluster.manifest(
        *company.classes(), gpu_job("lab/sim", "root.research.vision", gang=True)
    )
    told = cluster.ask("simulate", "ask", file, lines=GANG_LINES_MAX)
    told.says(
        "gang sim", "0 of the 8|none of the 8|for 1 of the 8", r"lacks? \d+ (nvidia.com/)?gpu"
    )
    told.says(r"do: raise the max of queue root.research", "gpu-01", "next try")


def test_5_what_if_i_submit_a_gang_that_evicts(cluster: Company) -> None:
    file = cluster.manifest(*company.classes(), gpu_job("lab/sim", "root.research.nlp", gang=True))
    told = cluster.ask("simulate", "ask", file, lines=GANG_LINES_MAX)
    told.says(
        "gang sim .*preempts", "8 allocations would be evicted", r"evicts (lab/nlp-\d\d,? ?){8}"
    )
    told.says("because .*its priority is lower", "do: ")


def test_5_what_if_i_submit_eight_pods_of_four_gpus(cluster: Company) -> None:
    job = gpu_job("lab/sim", "root.research.vision", gang=False)
    told = cluster.ask("simulate", "ask", cluster.manifest(*company.classes(), job))
    told.says(
        "8 asks: 2 preempt, 6 wait; 2 allocations would be evicted", r"preempts .*lab/vision-\d"
    )
    told.says("each asks for 8 cores, 64 GiB memory, 4 gpu", r"missing .*\d+ gpu", "next try")
    told.says(r"2 victims its priority is lower", r"do: raise the max of queue root.research")


def test_9_which_node_would_it_take(cluster: Company) -> None:
    pod = company.pod("shop/one", "root.prod.web", "one", {"cpu": "1", "memory": "1Gi"})
    told = cluster.ask("simulate", "ask", cluster.manifest(*company.classes(), pod))
    told.says("shop/one placed", r"node cpu-\d\d", "priority 100: PriorityClass normal")


# Queues ---------------------------------------------------------------------------------------------------------------


def test_6_which_guarantee_cannot_be_met_and_why(cluster: Company) -> None:
    told = cluster.ask("queues", "--unmet")
    told.says("root.research.notebooks cores 64 16 48 fence", "root.prod.web memory")
    told.says(r"4 asks for 16 cores.*fence: .*cure lift the fence of queue root.research ")
    told.says(r"root.prod.web \w+ 202 cores\D+200 cores.*cure add a node with 6 cores")
    told.says(r"gang bigtrain: 6 members .*own-max: .*evenhand explain lab/bigtrain")


def test_11_is_my_fence_working(cluster: Company) -> None:
    told = cluster.ask("explain", "root.research")
    told.says("claim .*because root.research is a fence", "preemption.policy fence here")
    told.says("cores 168 300", r"below its guarantee by \d+ cores")


def test_16_which_pods_are_opted_out(cluster: Company) -> None:
    told = cluster.ask("allocations", "--protection", "prefer-not", "--summary")
    told.says("33 allocations", "root.batch.etl 24 pods, allocated, prefer-not: 96 cores")
    told.says("root.batch.adhoc 9 pods", "night/b-005, .*night/b-165", "night/b-020, .*night/b-160")


def test_7_when_is_the_lowered_max_enforced(cluster: Company) -> None:
    cluster.value("config", "apply", cluster.queues_with(MAX))
    told = cluster.ask("queues", "root.batch")
    told.says(r"\d+ cores too much, enforced in 1 m \d\d s", "root.batch .*440|batch cores")
    cluster.ask("doctor").says("root.batch")
