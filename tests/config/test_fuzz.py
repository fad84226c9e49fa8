"""Random texts: `load` never raises, and gives a configuration exactly when there is no error."""

import json
import random

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from server.config import diff, load
from tests.config.texts import below, partition
from tests.effort import cases

MANY = settings(max_examples=cases(300), deadline=None, print_blob=True)
WORDS = [
    *(
        "partitions",
        "queues",
        "name",
        "root",
        "parent",
        "resources",
        "guaranteed",
        "max",
        "memory",
        "vcore",
    ),
    *(
        "weight",
        "properties",
        "preemption.delay",
        "quota.preemption.delay",
        "preemption.policy",
        "priority.offset",
    ),
    *(
        "childtemplate",
        "maxapplications",
        "submitacl",
        "adminacl",
        "limits",
        "users",
        "groups",
        "maxresources",
    ),
    *(
        "placementrules",
        "filter",
        "type",
        "value",
        "create",
        "fixed",
        "tag",
        "user",
        "provided",
        "preemption",
    ),
    *(
        "policies",
        "job",
        "pace",
        "perround",
        "naturaltermination",
        "shadow",
        "entitlement",
        "proportional",
        "proportion",
        "overshoot",
    ),
    *(
        "nodesortpolicy",
        "resourceweights",
        "fair",
        "usergroupresolver",
        "*",
        "a",
        "b",
        "<<",
        "10%",
        "5m",
        "500m",
    ),
    *("1Gi", "(a+)+", "[[a", "fence", "disabled", "last", "after"),
]
SCALARS = (
    st.sampled_from(WORDS)
    | st.integers()
    | st.booleans()
    | st.none()
    | st.floats()
    | st.text(max_size=5)
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
    ),
    max_leaves=40,
)
SOUND = below(
    """
    - name: a
      resources: {guaranteed: {memory: 1Gi}, max: {memory: 2Gi, vcore: 1500m}, quota.preemption.delay: 300}
      limits: [{users: [u, "*"], maxapplications: 1}]
      properties: {preemption.delay: 1m, preemption.policy: fence}
    - name: b
      parent: true
      childtemplate: {resources: {max: {vcore: 1}}}
      queues: [{name: c, weight: 2, submitacl: "x y"}]
    """
)
SOUND += "\n" + "\n".join(
    partition(
        """
        placementrules: [{name: tag, value: ns, create: true, filter: {users: ["^a"]}, parent: {name: fixed, value: b}}]
        preemption: {policies: [job, in-queue], pace: {perround: 5%}, job: {gathering: 2s}, shadow: {trigger: after}}
        nodesortpolicy: {type: binpacking, resourceweights: {vcore: 1.5}}
        """
    ).splitlines()[2:]
)


def check(text: str) -> None:
    configuration, problems = load(text, "any.yaml")
    errors = [problem for problem in problems if problem.severity == "error"]
    assert (configuration is None) == bool(errors)
    lines = max(1, len(text.splitlines()) + 1)
    assert all(1 <= problem.line <= lines and problem.message for problem in problems)
    assert all(bool(problem.consequence) == (problem.severity == "warning") for problem in problems)
    if configuration:
        assert diff(configuration, configuration) == []
        assert load(text, "any.yaml") == (configuration, problems)


def test_the_sound_text_is_sound() -> None:
    configuration, _ = load(SOUND)
    assert configuration is not None


@given(st.text(alphabet=st.characters(codec=None), max_size=200))
@example("\ud800")
@example("\x00")
@example("%YAML 9.9\n---\na")
@example("!!timestamp x")
@example("a: !!bool maybe")
@example("? !!null\n: 1")
@MANY
def test_any_text_is_answered(text: str) -> None:
    check(text)


@given(TREES)
@MANY
def test_any_tree_of_known_words_is_answered(tree: object) -> None:
    check(yaml.safe_dump(tree))


@given(TREES)
@MANY
def test_any_tree_in_the_place_of_a_partition_is_answered(tree: object) -> None:
    check(json.dumps({"partitions": [tree]}))


@given(st.dictionaries(st.sampled_from(WORDS), TREES, max_size=4))
@MANY
def test_any_tree_in_the_place_of_a_queue_is_answered(tree: dict[str, object]) -> None:
    check(json.dumps({"partitions": [{"queues": [{"name": "a", **tree}]}]}))


@given(st.integers(0, 2**32))
@MANY
def test_a_sound_text_with_some_characters_changed_is_answered(seed: int) -> None:
    chance = random.Random(seed)
    text = list(SOUND)
    for _ in range(chance.randint(1, 4)):
        spot = chance.randrange(len(text))
        text[spot] = chance.choice(
            ["", "\n", ":", "-", "*", "&", "5", "a", "[", "}", '"', " ", text[spot] * 2]
        )
    check("".join(text))


@given(st.integers(0, 2**32))
@MANY
def test_a_sound_text_with_words_exchanged_is_answered(seed: int) -> None:
    chance = random.Random(seed)
    words = SOUND.split(" ")
    for _ in range(chance.randint(1, 3)):
        spot = chance.randrange(len(words))
        if words[spot].strip():
            words[spot] = chance.choice(WORDS) + (":" if words[spot].endswith(":") else "")
    check(" ".join(words))
