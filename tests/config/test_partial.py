"""An error in one place hides no errors in other places, and causes no further errors that are not there."""

import textwrap

import pytest

from tests.config.texts import below, cases, partition, problems, tops


def found(text: str) -> list[tuple[str, str]]:
    """Return the end of each problem's path with its message, after a check that they come by line."""
    told = problems(text)
    assert [one.line for one in told] == sorted(one.line for one in told)
    return [(one.path.rpartition("queues")[2], one.message) for one in told]


def test_all_stages_are_told_at_once() -> None:
    text = below(
        """
        - name: a
          wieght: 5
          resources: {guaranteed: {vcore: 4, memory: 2Tx}, max: {vcore: 8}}
          queues:
            - name: b
              resources: {guaranteed: {vcore: 6}}
              properties: {preemption.dealy: 2s}
        - name: c
          resources: {guaranteed: {vcore: 8}, max: {vcore: 4}}
        """
    )
    assert [(place, told.split(",")[0]) for place, told in found(text)] == [
        ("[0].wieght", "unknown key 'wieght'"),
        (
            "[0].resources.guaranteed.memory",
            "'2Tx': 'Tx' is not a unit of memory: write nothing or k",
        ),
        ("[0].resources.guaranteed.vcore", "the queues below are guaranteed vcore 6"),
        ("[0].properties.preemption.dealy", "unknown property 'preemption.dealy'"),
        ("[1].resources.guaranteed.vcore", "vcore 8 is more than the queue's max of vcore 4"),
    ]


def test_paths_and_lines_are_those_of_the_text_where_an_entry_is_left_out() -> None:
    text = below("- name: a b\n- name: c\n  resources: {max: {vcore: one}}\n")
    first, second = problems(text)
    assert first.path == "partitions[0].queues[0].queues[0].name"
    assert (second.path, second.line) == (
        "partitions[0].queues[0].queues[1].resources.max.vcore",
        9,
    )


def test_a_key_written_twice_does_not_hide_the_rest() -> None:
    text = below("- name: a\n  weight: 1\n  weight: 2\n- name: b\n  resources: {max: {vcore: x}}")
    assert [place for place, _ in found(text)] == ["[0].weight", "[1].resources.max.vcore"]


def test_what_the_two_readings_of_a_fault_would_say_is_judged_of_both_partitions() -> None:
    text = "partitions:\n- queues: []\n  wieght: 1\n- name: gpu\n  queues:\n  - name: a\n    resources: {max: {vcore: x}}"
    assert [one.path for one in problems(text)] == [
        "partitions[0].wieght",
        "partitions[1].queues[0].resources.max.vcore",
    ]


ALONE = cases(
    (
        "children of a queue with a limit",
        below("- name: a\n  maxapplications: 5\n  queues: [{name: b, maxaplications: 3}]"),
    ),
    (
        "a bad number of applications",
        below("- name: a\n  maxapplications: 5\n  queues: [{name: b, maxapplications: three}]"),
    ),
    ("a user's name", below("- name: a\n  limits: [{users: ['a b'], maxapplications: 1}]")),
    (
        "the group before the wildcard",
        below(
            "- name: a\n  limits: [{groups: ['a b'], maxapplications: 2}, {groups: ['*'], maxapplications: 1}]"
        ),
    ),
    (
        "a queue that a rule names",
        partition(
            "placementrules: [{name: fixed, value: root.my-queue}]\nqueues: [{name: my queue, parent: false}]"
        ),
    ),
    (
        "queues below a parent that a rule names",
        partition(
            "placementrules: [{name: fixed, value: root.a.b}]\nqueues: [{name: a, queeus: [{name: b}]}]"
        ),
    ),
    (
        "the trigger that an overshoot needs",
        partition(
            "queues: []\npreemption: {entitlement: proportional, triger: after, proportion: {overshoot: last}}"
        ),
    ),
    ("a partition without queues", "partitions: [{name: default}]"),
    ("a name with a foreign tag", tops("- name: !own a\n")),
    ("a list that is none", "partitions: 5"),
)


@pytest.mark.parametrize("text", ALONE)
def test_nothing_false_follows_from_a_fault(text: str) -> None:
    told = problems(textwrap.dedent(text))
    assert len(told) == 1, "\n".join(map(str, told))


def test_a_rule_is_compared_with_the_queues_where_a_fault_says_nothing_of_them() -> None:
    text = partition(
        "placementrules: [{name: fixed, value: root.prdo}]\nqueues: [{name: prod, wieght: 5}]"
    )
    told = problems(text)
    assert [one.path.rpartition("[")[2] for one in told] == ["0].value", "0].wieght"]
    assert told[0].advice == "add the queue, correct its name, or write `create: true`"
