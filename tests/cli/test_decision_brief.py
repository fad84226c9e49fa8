"""A decision without `--all`: at most 30 lines at 80 columns, the answer first, equal victims in one line, the next step."""

import re

import pytest

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import explain_pb2
from evenhand_cli.render.screen import LINES_MAX
from tests.cli import decided
from tests.cli.fake import FakeCore, running
from tests.cli.run import Ended, evenhand
from tests.cli.samples import T0, cores_and_gib

NOW = T0 + 95_000
LONG = "a-workload-with-a-long-name-7d9c"
PATH = "root.a-division-with-a-name.a-department-with-a-name.a-team-with-a-name"


def crowded(kinds: int) -> pb.Decision:
    """Return a claim with very much to tell: many kinds of asks, victims, rules and queues, all with long names."""
    found = decided.claim()
    del found.beneficiaries[:], found.victims[:], found.spared[:], found.levels[:]
    for kind in range(kinds):
        for number in range(12):
            name = f"{LONG}-{kind}/{LONG}-{number}"
            found.beneficiaries.add(
                allocation_key=f"asks-{kind}-{number}",
                name=name,
                queue=f"{PATH}-{kind}",
                node_id=f"node-{number}",
                resources=cores_and_gib(kind + 1, 4) | {"nvidia.com/gpu": 2},
            )
            one = decided.victim(f"goes-{kind}-{number}", queue=f"{PATH}-{kind}")
            one.name = name
            one.because = (
                f"rule {kind}: " + "its queue is over its guarantee and stays above it " * 2
            )
            found.victims.append(one)
        found.spared.add(
            law=f"law-{kind}", rule="words " * 15, queue=f"{PATH}-{kind}", count=9 + kind
        )
        for role in ("deciding", "victim"):
            found.levels.add(
                queue=f"{PATH}-{kind}", role=role, resource_type="vcore", held=8_000, guaranteed=9
            )
    sentence = f"{LONG}/{LONG} was number 3 of 32 candidates; the next that is not evicted is {LONG}/{LONG}."
    found.why_these.extend([sentence] * 3)
    return found


def shown(found: pb.Decision, *more: str) -> Ended:
    answer = pb.GetDecisionResponse(decision=found, taken_at_ms=NOW)
    with running(FakeCore(GetDecision=answer)) as core:
        return evenhand("decisions", found.decision_id, *more, "--core", core.address, width=80)


def explained(found: pb.Decision, victim: pb.Victim, *more: str) -> Ended:
    answer = explain_pb2.ExplainResponse(
        kind=explain_pb2.SUBJECT_KIND_DECISION,
        key=found.decision_id,
        partition="default",
        lines=["It was evicted from queue " + f"{PATH} " * 3, found.summary],
        decision=found,
        evicted=victim,
        taken_at_ms=NOW,
    )
    with running(FakeCore(Explain=answer)) as core:
        return evenhand("explain", victim.name, *more, "--core", core.address, width=80)


@pytest.mark.parametrize("kinds", [1, 2, 9])
def test_however_much_there_is_to_tell_it_fits_a_screen(kinds: int) -> None:
    found = crowded(kinds)
    for ended in (shown(found), explained(found, found.victims[-1])):
        lines = ended.out.splitlines()
        assert len(lines) <= LINES_MAX == 30, ended.out
        assert all(len(line) <= 80 for line in lines)
        assert f"do: evenhand decisions {found.decision_id} --all: all of it" in ended.out
    every = shown(found, "--all")
    assert len(every.out.splitlines()) > LINES_MAX
    assert every.out.count("law-") == kinds


def test_rules_without_capacity_for_a_sentence_have_their_codes_and_counts() -> None:
    found = decided.claim()
    del found.spared[:]
    for kind in range(11):
        words = "its priority with the offsets of its queues is not lower " * 2
        found.spared.add(law=f"law-{kind}", rule=words, queue="root.a", count=100 - kind)
    ended = shown(found)
    assert len(ended.out.splitlines()) <= LINES_MAX
    out = " ".join(ended.out.split())
    assert "stay 100 of root.a: law-0, its priority" in out
    assert "further rules: " in out
    assert re.search(r"further rules: \d+ law-\d+, \d+ law-\d+, \d+ law-\d+", out)


def test_the_answer_comes_first_and_the_next_step_last() -> None:
    found = decided.claim()
    found.why_these.append(
        "crunch/count-1 was number 1 of 9 candidates; the next that is not evicted is ..."
    )
    lines = shown(found).out.splitlines()
    assert lines[1].strip() == found.summary
    text = " ".join(" ".join(lines).split())
    assert "lab/train-1 of root.research on node-a: 4 cores, 8 GiB memory, priority 100" in text
    assert "root.research 16/24 cores guaranteed (deciding)" in text
    assert "order crunch/count-1 was number 1 of 9 candidates" in text
    assert "12 of root.services: below-guarantee, without it a queue would be" in text
    assert "victims: 2, 1 of them gone" in text
    assert "do: evenhand explain root.batch: a higher guarantee keeps more of its pods" in text


def test_equal_victims_are_folded_those_like_the_one_asked_for_first() -> None:
    found = decided.claim()
    found.victims.extend(decided.victim(f"more-{number}") for number in range(20))
    asked = decided.victim("asked", queue="root.other", because="for another reason")
    found.victims.append(asked)
    out = " ".join(explained(found, asked).out.split())
    assert "victims 23, 1 of them gone crunch/asked of root.other on node-a" in out
    assert "crunch/count-1, crunch/more-0, crunch/more-1 and 18 more of root.batch" in out
    assert "do: evenhand explain root.other: a higher guarantee keeps" in out
    assert out.count("crunch/") <= 8
    assert explained(found, asked, "--all").out.count("crunch/") >= 23


def test_a_quota_run_tells_what_it_frees() -> None:
    out = shown(decided.quota_run()).out
    assert "6 cores of 9 candidates: shortfall" in out
    assert "do: evenhand explain root.batch: a higher max keeps more of its pods" in out


def test_only_a_run_that_falls_short_is_blocked() -> None:
    found = decided.quota_run()
    for more in ((), ("--all",)):
        assert "blocked by" in shown(found, *more).out
    found.quota_run.result = pb.QUOTA_RESULT_COMPLETE
    for more in ((), ("--all",)):
        ended = shown(found, *more)
        assert "complete" in ended.out
        assert "blocked by" not in ended.out


def test_a_max_is_told_where_it_was_exceeded() -> None:
    found = decided.quota_run()
    found.levels.append(decided.level())
    assert "max" not in shown(found).out.split("held")[1].split("policy")[0]
    found.levels[0].max = 12_000
    assert "root.research 16/24 cores guaranteed, max 12 (deciding)" in shown(found).out


def test_the_pod_that_is_asked_for_is_named_among_equal_victims() -> None:
    found = decided.claim()
    found.victims.extend(decided.victim(f"more-{number}") for number in range(20))
    out = " ".join(explained(found, found.victims[-1]).out.split())
    assert "crunch/more-19, crunch/count-1, crunch/more-0 and 18 more of root.batch" in out


def test_lost_work_is_told_by_type() -> None:
    found = decided.claim()
    found.lost_ran_ms, found.lost_millicore_ms = 3_600_000, 14_400_000_000
    found.lost_resource_seconds.update(
        {"vcore": 14_400_000, "nvidia.com/gpu": 7_200, "pods": 3_600}
    )
    assert "4.0 core h, 2.0 gpu h: they had run 1 h 00 m in all" in shown(found).out
