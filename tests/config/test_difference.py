"""The changes between two configurations, as text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from server.config import Change, diff
from server.model.quota import DEFAULT_CONFIGURATION
from tests.config.texts import accepted, partition, tops

BEFORE = partition(
    """
    preemption: {quotapreemptionenabled: true}
    nodesortpolicy: {type: fair}
    queues:
    - name: root
      submitacl: "*"
      queues:
      - name: a
        resources: {guaranteed: {memory: 1Gi}, max: {memory: 4Gi, vcore: 4}}
        properties: {quota.preemption.delay: 5m}
      - name: b
        resources: {max: {memory: 2Gi}}
      - name: c
    placementrules: [{name: provided}]
    """
)
AFTER = partition(
    """
    preemption: {backoff: 1m, quotapreemptionenabled: true, pace: , shadow: {trigger: after}, job: {disableDefaultPreemptiable: true}}
    nodesortpolicy: {type: binpacking, resourceweights: {vcore: 1.5}}
    queues:
    - name: root
      submitacl: "anna,bob dev"
      queues:
      - name: a
        resources: {max: {memory: 3Gi, gpu: 0, vcore: 5}}
        properties: {quota.preemption.delay: 10m}
        limits: [{users: [anna], groups: [g], maxresources: {vcore: 1}, maxapplications: 2}]
      - name: b
        weight: 2
        resources: {max: {memory: 1Gi}}
        parent: true
        childtemplate: {resources: {max: {vcore: 1}}, maxapplications: 3}
      - name: d
    placementrules: [{name: tag, value: namespace, create: true, filter: {type: deny, users: [bob]}, parent: {name: fixed, value: b}}]
    """
)


def test_equal_configurations_do_not_differ() -> None:
    assert diff(accepted(BEFORE), accepted(BEFORE + "\n# only a comment\n")) == []


def test_changes_of_reservations_are_named() -> None:
    before = partition("queues: [{name: root, submitacl: '*'}]")
    after = partition(
        "queues: [{name: root, submitacl: '*'}]\nreservations: {enabled: false, timeout: 1h}"
    )
    assert [str(change) for change in diff(accepted(before), accepted(after))] == [
        "partition default: reservations.enabled true -> false",
        "partition default: reservations.timeout 10m -> 1h",
    ]


def test_every_change_is_named_with_before_and_after() -> None:
    told = [str(change) for change in diff(accepted(BEFORE), accepted(AFTER))]
    template = [line for line in told if "childtemplate." in line]
    assert [line for line in told if line not in template] == [
        "partition default: nodesortpolicy.resourceweights memory=1 vcore=1 -> vcore=1.5",
        "partition default: nodesortpolicy.type fair -> binpacking",
        "partition default: placementrules provided -> tag namespace create deny bob under (fixed b)",
        "partition default: preemption.backoff 15s -> 1m",
        "partition default: preemption.job.disableDefaultPreemptiable false -> true",
        "partition default: preemption.pace.perround 0% -> 10%",
        "partition default: preemption.shadow.trigger not set -> after",
        "queue root: submitacl * -> anna,bob dev",
        "queue root.a: guaranteed.memory 1Gi -> not set",
        "queue root.a: limits not set -> user anna, group g: vcore=1 maxapplications=2",
        "queue root.a: max.gpu not set -> 0 (what is above it after 10m is preempted)",
        "queue root.a: max.memory 4Gi -> 3Gi (what is above it after 10m is preempted)",
        "queue root.a: max.vcore 4 -> 5",
        "queue root.a: quota.preemption.delay 5m -> 10m",
        "queue root.b: kind leaf -> parent",
        "queue root.b: max.memory 2Gi -> 1Gi (what runs above it stays until it ends)",
        "queue root.b: weight 1 -> 2",
        "queue root.c removed (it drains: what runs there ends, new applications are refused)",
        "queue root.d added",
    ]
    assert "queue root.b: childtemplate.max.vcore not set -> 1" in template
    assert "queue root.b: childtemplate.maxapplications not set -> 3" in template


def test_partitions_come_and_go() -> None:
    one = accepted("partitions: [{name: a, queues: [{name: q}]}, {queues: []}]")
    other = accepted("partitions: [{queues: []}, {name: b, queues: [{name: q}]}]")
    assert diff(one, other) == [
        Change(
            "removed",
            "partition a",
            consequence="its queues stop: nothing is placed there any more",
        ),
        Change("added", "partition b"),
        Change("added", "queue root of partition b"),
        Change("added", "queue root.q of partition b"),
    ]


def test_the_default_configuration_can_be_compared() -> None:
    assert Change("added", "queue root.a") in diff(
        DEFAULT_CONFIGURATION, accepted(tops("- name: a"))
    )


QUEUES = st.dictionaries(
    st.sampled_from("abcd"),
    st.fixed_dictionaries({"max": st.integers(0, 3), "weight": st.integers(1, 3)}),
    max_size=4,
)


@given(before=QUEUES, after=QUEUES)
@settings(deadline=None, print_blob=True)
def test_a_difference_is_empty_only_between_equals_and_turns_around(
    before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]
) -> None:
    old, new = (accepted(_text(one)) for one in (before, after))
    there, back = diff(old, new), diff(new, old)
    assert (not there) == (old.partitions == new.partitions)
    assert {(one.subject, one.field, one.before, one.after) for one in there} == {
        (one.subject, one.field, one.after, one.before) for one in back
    }


def _text(queues: dict[str, dict[str, int]]) -> str:
    lines = [
        f"- {{name: {name}, weight: {one['weight']}, resources: {{max: {{memory: {one['max']}}}}}}}"
        for name, one in sorted(queues.items())
    ]
    return tops("\n".join(lines)) if lines else partition("queues: []")
