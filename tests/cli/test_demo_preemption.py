"""The demonstration's text about preemption, for prepared decisions and pods."""

from rich.text import Text

from evenhand.v1 import decisions_pb2 as pb
from evenhand.v1 import inspect_pb2
from evenhand_cli.demo.facts import Picture, Progress, count_pods
from evenhand_cli.demo.picture import picture_console
from evenhand_cli.demo.preempted import preempted, preempted_lines, preempted_value
from evenhand_cli.demo.screen import Stage, one_line, screen
from tests.cli.decided import claim, quota_run, trim


def told(*decisions: pb.Decision) -> list[str]:
    return [line.plain for line in preempted_lines(preempted(decisions))]


def test_without_decisions_nothing_is_said() -> None:
    assert told() == []
    assert preempted_value(preempted([]))["decisions"] == 0


def test_those_who_went_and_those_who_still_leave() -> None:
    counts, story, _ = told(claim())
    assert counts == (
        "preemption: 1 pod evicted for 1 other, 1 still leaving; 1 decision: 1 guaranteed"
    )
    assert story == (
        "such as g-19aa1b2c3d4-17 (guaranteed): crunch/count-1 and crunch/count-2 of root.batch"
        " are evicted from node-a for lab/train-1 of root.research"
    )


def test_a_quota_run_serves_nobody() -> None:
    counts, story, _ = told(quota_run())
    assert counts == "preemption: 3 pods evicted; 1 decision: 1 quota"
    assert story == (
        "such as q-19aa1b2c3d5-18 (quota): root.batch is reduced to its max without"
        " crunch/count-3 to crunch/count-5 of root.batch"
    )


def test_a_trim_brings_down_the_queues_below_the_one_that_it_names() -> None:
    counts, story, _ = told(trim())
    assert counts == "preemption: 0 pods evicted, 2 still leaving; 1 decision: 1 trim"
    assert story == (
        "such as t-19aa1b2c3d7-20 (trim): queues above their shares give back"
        " crunch/count-8 and crunch/front-9 of root.batch, root.services"
    )


def test_what_was_only_observed_made_nobody_go() -> None:
    seen = claim()
    seen.state = pb.DECISION_STATE_OBSERVED
    for victim in seen.victims:
        victim.state = pb.VICTIM_STATE_UNSPECIFIED
    counts, story, _ = told(seen, quota_run())
    assert counts == (
        "preemption: 3 pods evicted; 2 decisions: 1 guaranteed, 1 quota, 1 only observed"
    )
    assert story.startswith("such as q-")


def test_pods_that_leave_are_counted_as_long_as_they_run() -> None:
    pod = {"spec": {"schedulerName": "evenhand", "nodeName": "node-1"}}
    going = {"name": "going", "deletionTimestamp": "2026-11-21T12:00:00Z"}
    pods = [{**pod, "metadata": {"name": "stays"}}, {**pod, "metadata": going}]
    counts = count_pods(pods, ["evenhand"])
    assert (counts.total, counts.bound, counts.leaving) == (2, 2, 1)
    progress = Progress(started_s=0.0)
    progress.see(1.0, Picture(inspect_pb2.QueueTree(), inspect_pb2.Partition(), counts))
    assert ", 1 leaving, " in one_line(progress, 1.0)
    console = picture_console()
    with console.capture() as shown:
        console.print(screen(Stage("here", "there"), progress, 1.0, console))
    assert "leaving 1" in Text.from_ansi(shown.get()).plain
