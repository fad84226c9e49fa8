"""Plan checks: whether pods would fit on their nodes if the victims were gone, and the places that are kept after a yes (design 1.8)."""

import random
from dataclasses import replace
from typing import Any

import pytest

from shim_client.messages import Placed, PlanCheck, PlanCheckAnswer, PlanCheckEnded
from shim_client.state_machine.node_suitability import obstacle
from tests.shim.objects import Item, node, pod
from tests.shim.story import Story
from tests.shim.test_suitability import HOST, ZONE, apart, cluster, near, see, spread, started
from tests.shim.test_volume_matching import claim, storage_class, volume, wants


def check(name: str, *placements: str, without: str = "") -> PlanCheck:
    """Return a check of placements in the form "pod@node", in one partition."""
    pairs = (one.split("@") for one in placements)
    victims = tuple(f"uid-{one}" for one in without.split())
    return PlanCheck(name, "default", tuple((f"uid-{pod}", node) for pod, node in pairs), victims)


def ask(story: Story, question: PlanCheck) -> dict[str, str]:
    """Return the reason for each pod that the shim refuses; {} when all would fit."""
    before = len(story.reports)
    story.hear(question)
    [answer] = [one for one in story.reports[before:] if isinstance(one, PlanCheckAnswer)]
    assert answer.check == question.check
    return {key.removeprefix("uid-"): why for key, why in answer.refused}


def test_a_pod_that_fits_without_its_victims_is_agreed_to() -> None:
    story = started(apart("v", "n1"))
    story.see(apart("b"))
    assert ask(story, check("1", "b@n1")) == {"b": "a pod there keeps pods like it away"}
    assert ask(story, check("2", "b@n1", without="v")) == {}


def test_a_pod_that_wants_to_be_near_a_victim_is_refused() -> None:
    story = started(pod("v", node="n1", labels={"app": "cache"}))
    story.see(pod("b", spec=near("podAffinity", ZONE, {"app": "cache"})))
    assert ask(story, check("1", "b@n2")) == {}
    assert ask(story, check("2", "b@n2", without="v")) == {
        "b": "pods that it must be near are not there"
    }


def test_pods_of_one_check_count_for_each_other() -> None:
    story = started()
    story.see(apart("a"), apart("b"), apart("c"))
    assert list(ask(story, check("1", "a@n1", "b@n1"))) == ["b"]
    assert ask(story, check("2", "a@n1", "b@n2")) == {}
    assert list(ask(story, check("3", "c@n2"))) == ["c"]


def test_a_spread_is_judged_with_the_victims_gone_and_the_others_in_place() -> None:
    story = Story().start(*cluster(spread("v", "n1"), zones="abc")).forget()
    story.see(spread("x"), spread("y"), spread("z"))
    assert list(ask(story, check("1", "x@n1"))) == ["x"]
    assert ask(story, check("2", "x@n1", without="v")) == {}
    assert list(ask(story, check("3", "y@n1", without="v"))) == ["y"]
    assert ask(story, check("4", "y@n2", "z@n3", without="v")) == {}


def test_a_kept_place_counts_for_other_pods_until_the_check_ends() -> None:
    story = started()
    story.see(apart("a"))
    assert ask(story, check("1", "a@n1")) == {}
    assert see(story, apart("b")) == ([], ["n1"])
    story.forget()
    story.hear(PlanCheckEnded("1", "default"))
    story.seconds(1)
    constraints = story.last_pod().constraints
    assert constraints is None or not constraints.excluded_nodes


def test_checks_of_two_partitions_may_have_the_same_name() -> None:
    """Cores number the checks of each partition by themselves."""
    story = started()
    story.see(apart("a"), pod("b"))
    one, other = check("1", "a@n1"), replace(check("1", "b@n2"), partition="gpu")
    assert ask(story, one) == {}
    assert ask(story, other) == {}
    first, second = [one for one in story.reports if isinstance(one, PlanCheckAnswer)]
    assert first.key != second.key
    story.hear(PlanCheckEnded("1", "gpu"))
    assert see(story, apart("c")) == ([], ["n1"])


def test_a_pod_whose_place_is_kept_is_bound_there() -> None:
    story = started()
    story.see(apart("a"))
    assert ask(story, check("1", "a@n1")) == {}
    story.hear(Placed("uid-a", "n1"))
    assert [(one.pod.uid, one.node) for one in story.binds()] == [("uid-a", "n1")]
    assert not story.mirror.state.promises
    story.hear(PlanCheckEnded("1", "default"))  # comes after the placement, and changes nothing
    assert see(story, apart("b")) == ([], ["n1"])


def test_the_ask_of_a_pod_whose_place_is_kept_stays_as_it_is() -> None:
    story = started()
    story.see(apart("a"))
    story.forget()
    assert ask(story, check("1", "a@n1")) == {}
    story.see(apart("a"))
    story.seconds(2)
    assert [line for line in story.told() if line == "ask a"] == []


def test_a_pod_that_is_gone_or_has_a_node_and_an_unknown_node_are_refused() -> None:
    story = started(apart("r", "n1"))
    story.see(apart("a"))
    refused = ask(story, check("1", "gone@n2", "r@n1", "a@n9"))
    assert set(refused) == {"gone", "r", "a"}
    assert refused["a"] == "there is no node 'n9'"
    assert not story.mirror.state.promises


def test_a_pod_that_ends_gives_its_place_up() -> None:
    story = started()
    story.see(apart("a"))
    assert ask(story, check("1", "a@n1")) == {}
    story.gone(apart("a"))
    assert see(story, apart("b")) == ([], [])
    assert not story.mirror.state.promises


def test_places_are_not_kept_over_sessions() -> None:
    story = started()
    story.see(apart("a"))
    assert ask(story, check("1", "a@n1")) == {}
    story.lose()
    story.connect()
    assert see(story, apart("b")) == ([], [])
    assert not story.mirror.state.promises


def test_a_kept_place_counts_with_the_labels_that_the_pod_has_now() -> None:
    story = started()
    story.see(apart("a"))
    assert ask(story, check("1", "a@n1")) == {}
    changed = apart("a")
    changed["metadata"]["labels"] = {"app": "other"}
    story.see(changed)
    other = pod("b", spec=near("podAntiAffinity", HOST, {"app": "other"}))
    assert see(story, other) == ([], ["n1"])


def test_a_kept_place_counts_with_the_labels_that_its_node_has_now() -> None:
    story = started()
    story.see(apart("a", key=ZONE))
    assert ask(story, check("1", "a@n1")) == {}
    assert see(story, apart("b", key=ZONE)) == ([], ["n1", "n2"])
    story.see(node("n1", labels={HOST: "n1", ZONE: "b"}))
    assert see(story, apart("c", key=ZONE)) == ([], ["n1", "n3", "n4"])


def test_a_pod_that_another_scheduler_binds_gives_its_place_and_volume_up() -> None:
    story = (
        Story()
        .start(
            storage_class(),
            *cluster(volume("v1", "n1"), volume("v2", "n2"), claim("c"), claim("d")),
        )
        .forget()
    )
    story.see(wants("a", "c"), wants("b", "d"))
    assert ask(story, check("1", "a@n1")) == {}
    assert list(ask(story, check("2", "b@n1"))) == ["b"]
    bound = wants("a", "c")
    bound["spec"]["nodeName"] = "n2"
    story.see(bound)
    assert not story.mirror.state.promises
    assert ask(story, check("3", "b@n1")) == {}


def test_a_second_check_of_a_pod_replaces_the_first() -> None:
    story = started()
    story.see(apart("a"))
    assert ask(story, check("1", "a@n1")) == {}
    assert ask(story, check("2", "a@n2")) == {}
    story.hear(PlanCheckEnded("1", "default"))
    assert see(story, apart("b")) == ([], ["n2"])


def test_a_volume_that_the_agreement_relies_on_is_kept() -> None:
    story = (
        Story()
        .start(storage_class(), *cluster(volume("v1", "n1"), claim("c"), claim("d")))
        .forget()
    )
    story.see(wants("a", "c"), wants("b", "d"))
    assert ask(story, check("1", "a@n1")) == {}
    assert list(ask(story, check("2", "b@n1"))) == ["b"]
    story.hear(PlanCheckEnded("1", "default"))
    assert ask(story, check("3", "b@n1")) == {}


# Against a plain judge ------------------------------------------------------------------------------------------------


def any_pod(dice: random.Random, name: str, at: str = "") -> Item:
    labels = {"app": dice.choice(["db", "web"])}
    rule: dict[str, Any] = dice.choice(
        [
            {},
            near("podAntiAffinity", dice.choice([HOST, ZONE]), {"app": dice.choice(["db", "web"])}),
            near("podAffinity", ZONE, {"app": dice.choice(["db", "web"])}),
            spread("s", skew=dice.randint(1, 2), key=dice.choice([HOST, ZONE]))["spec"],
        ]
    )
    return pod(name, node=at, labels=labels, spec=rule)


@pytest.mark.parametrize("seed", range(60))
def test_answers_are_those_for_a_cluster_without_the_victims(seed: int) -> None:
    """The judge is a second state machine that never saw the victims, and where the pods before run on their nodes."""
    dice = random.Random(seed)
    nodes = ["n1", "n2", "n3", "n4"]
    running = [any_pod(dice, f"r{number}", dice.choice(nodes)) for number in range(6)]
    waiting = [any_pod(dice, f"w{number}") for number in range(3)]
    story = started(*running)
    story.see(*waiting)
    for turn in range(4):
        victims = dice.sample([one["metadata"]["name"] for one in running], dice.randint(0, 3))
        places = [(one, dice.choice(nodes)) for one in dice.sample(waiting, dice.randint(1, 3))]
        pairs = [f"{one['metadata']['name']}@{at}" for one, at in places]
        refused = ask(story, check(str(turn), *pairs, without=" ".join(victims)))
        left = [one for one in running if one["metadata"]["name"] not in victims]
        for one, at in places:
            judge = started(*left)
            judge.see(one)
            state = judge.mirror.state
            why = obstacle(state, state.pods[one["metadata"]["uid"]], at)
            assert refused.get(one["metadata"]["name"], "") == why, (pairs, victims)
            if not why:
                left.append({**one, "spec": {**one["spec"], "nodeName": at}})
        story.hear(PlanCheckEnded(str(turn), "default"))
        fresh = started(*running)
        fresh.see(*waiting)
        assert counts(story) == counts(fresh)


def counts(story: Story) -> dict[str, Any]:
    around = story.mirror.state.neighbourhood
    return {uid: one.node_labels for uid, one in around.assignments.items()}
