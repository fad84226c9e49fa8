"""Questions of a new user about the past: one command answers each, also after the core was killed and started again.

The numbers are those of the list of questions: 8, 12, 14, 15, 17 and 20.
"""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from server.replication import saved
from tests.cli.processes import ROOT, address_of, finished, running, until
from tests.cli.run import evenhand
from tests.questions.test_questions import COLUMNS_MAX, Answer

CLUSTER = ROOT / "examples" / "clusters" / "claim"
VICTIMS = 8


class Past:
    """A core whose predecessor decided everything and was killed."""

    def __init__(self, core: str, folder: Path) -> None:
        self.core = core
        self.folder = folder

    def ask(self, *arguments: str) -> Answer:
        """Ask one question in a terminal of 80 columns."""
        ended = finished(*arguments, "--core", self.core, columns=COLUMNS_MAX, folder=self.folder)
        answer = Answer(ended.returncode, ended.stderr + ended.stdout, ended.stdout)
        answer.fits()
        return answer

    def value(self, *arguments: str) -> Any:
        """Return an answer as data."""
        return evenhand(*arguments, "--core", self.core, "-o", "json").value()


def serve(state: Path, log: Path, address: str = "127.0.0.1:0") -> Any:
    arguments = ["serve", "--listen", address, "--state-dir", str(state)]
    kept = ["--history-retention", "30d", "--history-minutes-after", "1h"]
    coarser = ["--history-ten-minutes-after", "2d", "--history", str(state / "history.sqlite")]
    return running([*arguments, "--history-sample", "1s", *kept, *coarser], log)


def shim(core: str, cluster: Path, log: Path) -> Any:
    return running(["shim", "--cluster", str(cluster), "--core", core], log)


def answered(core: str, *arguments: str) -> Any:
    """Return an answer as data; None while there is none."""
    ended = evenhand(*arguments, "--core", core, "-o", "json")
    return ended.value() if ended.code == 0 else None


def victims_of(core: str) -> int:
    found = answered(core, "history", "lost-work")
    return 0 if found is None else sum(one["victims"] for one in found["lines"])


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    """Run a core until eight pods were evicted, change its configuration, kill it, and start another one."""
    folder = tmp_path_factory.mktemp("past")
    state = folder / "state"
    state.mkdir(mode=0o700)
    cluster = Path(shutil.copytree(CLUSTER, folder / "cluster"))
    queues = (cluster / "queues.yaml").read_text()
    later = folder / "later.yaml"
    later.write_text(queues.replace("guaranteed: {vcore: 16}", "guaranteed: {vcore: 12}"))
    assert later.read_text() != queues
    log = folder / "first.log"
    with ExitStack() as stack:
        with serve(state, log) as first:
            core = address_of(first, log)
            stack.enter_context(shim(core, cluster, folder / "shim.log"))
            until(lambda: victims_of(core) == VICTIMS)
            assert evenhand("config", "apply", str(later), "--core", core).code == 0
            until(lambda: configurations(core) == 3)
            until(lambda: has_usage(core))
            first.send_signal(signal.SIGKILL)
            first.wait()
        # A state that was saved in the meantime would give the next core its decisions back.
        (state / saved.NAME).unlink(missing_ok=True)
        log = folder / "second.log"
        second = stack.enter_context(serve(state, log, core))
        address_of(second, log)
        until(lambda: is_compared(core))
        yield Past(core, folder)


def configurations(core: str) -> int:
    found = answered(core, "history", "config")
    return 0 if found is None else len(found["configurations"])


def has_usage(core: str) -> bool:
    found = answered(core, "history", "queue", "root.shop")
    return any(point["usage"] for one in found["series"] for point in one["points"])


def is_compared(core: str) -> bool:
    """Return whether the history has compared itself with the core that was started last."""
    found = answered(core, "history", "failovers")
    rows = [] if found is None else found["failovers"]
    kinds = [one["kind"] for one in rows]
    if "core-killed" not in kinds or "synced" not in kinds:
        return False
    synced = rows[kinds.index("synced")]
    is_latest = kinds.index("synced") < kinds.index("core-killed")
    return is_latest and "allocations_after" in synced["facts"]


def test_8_who_evicted_most_this_hour(past: Past) -> None:
    answer = past.ask("history", "lost-work", "--since", "1h")
    answer.says(
        r"of \d+ victims were lost since", r"claimant root\.shop \d+", r"victim root\.batch \d+"
    )


def test_12_what_did_the_last_configuration_change(past: Past) -> None:
    answer = past.ask("history", "config")
    answer.says(
        r"revision 3 .* by local, apply later\.yaml; in force",
        r"root\.shop .*16 -> 12",
        r"8 decisions of guaranteed evicted 8 pods",
        r"do: evenhand config rollback 2",
    )


def test_14_how_long_do_pods_of_a_queue_wait(past: Past) -> None:
    answer = past.ask("history", "waits", "--queue", "root.shop")
    answer.says(
        r"were placed; half of them within [\d.]+ s, 90 % within [\d.]+ s, 99 % within", "no-node"
    )


def test_15_what_did_a_queue_use_in_the_last_hour(past: Past) -> None:
    answer = past.ask("history", "queue", "root.shop", "--since", "1h")
    answer.says(
        r"It used [\d.]+ cores on average, 16 at most; 8 pods at most",
        "guaranteed",
        "cores",
        "memory",
        "pods",
    )


def test_17_whose_work_was_lost_today(past: Past) -> None:
    answer = past.ask("history", "lost-work", "--since", "1d")
    answer.says(r"core s", r"user nobody", r"application film")


def test_20_did_the_last_restart_lose_anything(past: Past) -> None:
    answer = past.ask("history", "failovers")
    answer.says(
        r"The latest core was started after [\d.]+ s",
        "allocations are there again",
        "core was killed",
    )


def test_an_evicted_pod_is_known_after_the_restart(past: Past) -> None:
    rows = past.value("history", "pod", "studio/frame-04")["pods"]
    evicted = next(one for one in rows if one["end_code"] == "preempted")
    assert evicted["decision_id"]
    assert evicted["placed_ms"] <= evicted["ended_ms"]


def test_decisions_are_listed_across_the_restart(past: Past) -> None:
    answer = past.ask("decisions", "--since", "1h")
    answer.says(
        r"8 decisions", r"8 decisions made before the core was started at .*: from the history"
    )
    assert past.value("decisions", "--since", "1h")["from_history"] == VICTIMS
    assert past.value("decisions", "--open")["decisions"] == []
    assert past.value("decisions", "--policy", "quota")["decisions"] == []


def test_decisions_of_the_last_day_are_listed_after_the_restart_without_a_time(past: Past) -> None:
    answer = past.ask("decisions")
    answer.says(
        r"8 decisions made before the core was started at .*: from the history of the last day; "
        r"more: --since 7d"
    )
    listed = past.value("decisions")
    assert listed["from_history"] == VICTIMS
    assert listed["decisions"] == past.value("decisions", "--since", "1h")["decisions"]


def test_a_decision_is_shown_after_the_restart(past: Past) -> None:
    decision = past.value("decisions", "--since", "1h")["decisions"][0]
    answer = past.ask("decisions", decision["decision_id"])
    answer.says("from the history", "guaranteed", r"shop/shop-", r"studio/frame-\d+")
    ended = evenhand("decisions", "g-1-1", "--core", past.core)
    assert ended.code == 1
    assert "there is no decision `g-1-1`" in ended.err


def test_an_evicted_pod_is_explained_after_the_restart(past: Past) -> None:
    answer = past.ask("explain", "studio/frame-04")
    answer.says(
        "from the history", "and was evicted", r"8 of 16 cores guaranteed|over its guarantee"
    )


def test_lost_work_reaches_beyond_the_restart(past: Past) -> None:
    answer = past.ask("decisions", "--lost-work", "--since", "1h")
    answer.says("from the history", r"of 8 victims were lost since")


def test_a_rollback_applies_an_earlier_text_as_the_next_revision(past: Past) -> None:
    text = evenhand("config", "show", "--core", past.core).out
    dry = evenhand("config", "rollback", "2", "--dry-run", "--core", past.core)
    assert (dry.code, "nothing was applied" in dry.out) == (0, True)
    before = past.value("config", "show")["revision"]
    applied = past.value("config", "rollback", "2")
    assert (applied["applied"], applied["revision"]) == (True, before + 1)
    assert [one["subject"] for one in applied["changes"]] == ["queue root.shop"]
    now = evenhand("config", "show", "--core", past.core).out
    assert "guaranteed: {vcore: 16}" in now
    assert "guaranteed: {vcore: 16}" not in text
    missing = evenhand("config", "rollback", "99", "--core", past.core)
    assert missing.code == 1
    assert "there is no revision of the configuration '99'" in missing.err
    builtin = evenhand("config", "rollback", "1", "--core", past.core)
    assert "is the built-in configuration" in builtin.err


def test_times_and_filters_narrow_what_is_shown(past: Past) -> None:
    before = ("--since", "2d", "--until", "1d")
    assert past.value("history", "lost-work", *before)["lines"] == []
    assert past.value("history", "lost-work", "--policy", "quota")["lines"] == []
    assert past.value("history", "lost-work", "--queue", "root.shop")["lines"] != []
    assert past.value("history", "failovers", *before)["failovers"] == []
    assert past.value("history", "config", *before)["configurations"] == []
    assert past.value("history", "waits", "--queue", "root.shop", *before)["queues"] == []
    assert past.value("history", "queue", "root.shop", *before)["series"] == []


def test_all_shows_every_row(past: Past) -> None:
    for asked in (["waits"], ["config"], ["lost-work"], ["pod", "studio/frame-04"]):
        ended = evenhand("history", *asked, "--all", "--core", past.core)
        said = [one for one in ended.err.splitlines() if not one.startswith("waiting for ")]
        assert (ended.code, said) == (0, [])
        short = evenhand("history", *asked, "--core", past.core)
        assert len(ended.out) >= len(short.out)


def test_another_partition_has_no_history(past: Past) -> None:
    other = ("--partition", "other")
    assert past.value("history", "waits", *other)["queues"] == []
    assert past.value("history", "lost-work", *other)["lines"] == []
    assert past.value("history", "queue", "root.shop", *other)["series"] == []
    assert evenhand("history", "pod", "studio/frame-04", *other, "--core", past.core).code == 1


def test_a_rollback_is_data_and_its_warnings_may_be_silenced(past: Past) -> None:
    silent = past.ask(
        "config", "rollback", "2", "--dry-run", "--all", "--ignore", "quota-not-enabled"
    )
    assert silent.code == 0


def test_an_unknown_pod_is_a_fault(past: Past) -> None:
    ended = evenhand("history", "pod", "shop/nobody", "--core", past.core)
    assert ended.code == 1
    assert "there is no pod in the history 'shop/nobody'" in ended.err


def test_a_core_without_a_history_says_how_to_keep_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(["serve", "--listen", "127.0.0.1:0"], log) as process:
        ended = evenhand("history", "waits", "--core", address_of(process, log))
    assert ended.code == 1
    assert "this core keeps no history: start it with `--history FILE`" in ended.err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--history", "mysql://x/y"], "mysql:// is not known; name a file"),
        (["--history", "/proc/nothing/h.sqlite"], "/proc/nothing/h.sqlite"),
        (["--history-retention", "1h"], "the times of the history are in order"),
        (["--history-sample", "soon"], "`soon` is not a length of time"),
        (["--history-size-max", "2 apples"], "`2 apples` is not a size, such as 500MiB or 2GiB"),
    ],
)
def test_a_history_that_cannot_be_kept_is_a_bad_option(options: list[str], why: str) -> None:
    ended: subprocess.CompletedProcess[str] = finished("serve", "--listen", "127.0.0.1:0", *options)
    assert ended.returncode == 2
    assert why in " ".join(ended.stderr.split())
