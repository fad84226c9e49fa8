"""Warnings with consequences, each for a text that has the problem and for a similar text that has not."""

import pytest

from tests.config.texts import assert_problem, below, cases, marked_line, partition, problems, tops

QUOTA_ON = "preemption: {quotapreemptionenabled: true}\n"


def quota(text: str, *, on: bool = True) -> str:
    """Return a text of queues in a partition that enforces lowered quotas."""
    lines = "\n".join(f"    {line}" for line in text.strip("\n").splitlines())
    switch = QUOTA_ON if on else ""
    return partition(f"{switch}queues:\n- name: root\n  submitacl: '*'\n  queues:\n{lines}")


def preemption(text: str) -> str:
    lines = "\n".join(f"  {line}" for line in text.splitlines())
    return partition(f"queues: [{{name: root, submitacl: '*'}}]\npreemption:\n{lines}")


WARNED = cases(
    (
        "siblings below their parent's guarantee",
        below(
            "- name: a\n  resources:\n    guaranteed: {memory: 10}  # <-\n  queues:\n"
            "  - {name: b, resources: {guaranteed: {memory: 4}}}\n"
            "  - {name: c, resources: {guaranteed: {memory: 5}}}"
        ),
        "resources.guaranteed.memory",
        "together 1 less than this",
    ),
    (
        "max equal to the guarantee",
        quota(
            "- name: a\n  properties: {quota.preemption.delay: 5m}\n  resources:\n"
            "    guaranteed: {memory: 5}\n    max: {memory: 5}  # <-"
        ),
        "resources.max.memory",
        "equals the guarantee",
    ),
    (
        "max equal to the guarantee, delay inherited",
        quota(
            "- name: a\n  properties: {quota.preemption.delay: 5m}\n  queues:\n  - name: b\n    resources:\n"
            "      guaranteed: {memory: 5}\n      max: {memory: 5}  # <-"
        ),
        "resources.max.memory",
        "equals the guarantee",
    ),
    (
        "seconds for minutes",
        quota("- name: a\n  resources:\n    quota.preemption.delay: 5  # <-"),
        "resources.quota.preemption.delay",
        "5 under resources are 5 seconds",
    ),
    (
        "a delay while the switch is off",
        quota("- name: a\n  properties:\n    quota.preemption.delay: 5m  # <-", on=False),
        "properties.quota.preemption.delay",
        "quotapreemptionenabled is not true",
    ),
    (
        "seconds while the switch is off",
        quota("- name: a\n  resources:\n    quota.preemption.delay: 300  # <-", on=False),
        "resources.quota.preemption.delay",
        "quotapreemptionenabled is not true",
    ),
    (
        "max of 0",
        below("- name: a\n  resources: {max: {gpu: 0}}  # <-"),
        "max.gpu",
        "forbids the type",
    ),
    (
        "the type cpu",
        below("- name: a\n  resources: {max: {cpu: 5}}  # <-"),
        "max.cpu",
        "is `vcore`",
    ),
    (
        "cpu guaranteed",
        below("- name: a\n  resources: {guaranteed: {cpu: 5}}  # <-"),
        "guaranteed.cpu",
        "is `vcore`",
    ),
    (
        "a leaf with queues",
        below("- name: a\n  parent: false  # <-\n  queues: [{name: b}]"),
        "parent",
        "it has queues below",
    ),
    (
        "root as a leaf",
        tops("- name: root\n  submitacl: '*'\n  parent: false  # <-"),
        "parent",
        "root is always a parent",
    ),
    (
        "a template at a leaf",
        below("- name: a\n  childtemplate: {}  # <-"),
        "childtemplate",
        "stands at a leaf",
    ),
    (
        "a template's max of 0",
        below("- name: a\n  parent: true\n  childtemplate:\n    resources: {max: {gpu: 0}}  # <-"),
        "childtemplate.resources.max.gpu",
        "forbids the type",
    ),
    (
        "a template's quota delay",
        below(
            "- name: a\n  parent: true\n  childtemplate:\n    properties:\n      quota.preemption.delay: 5m  # <-"
        ),
        "childtemplate.properties.quota.preemption.delay",
        "no effect on dynamic queues",
    ),
    (
        "a template's quota delay in seconds",
        below(
            "- name: a\n  parent: true\n  childtemplate:\n    resources:\n      quota.preemption.delay: 300  # <-"
        ),
        "childtemplate.resources.quota.preemption.delay",
        "no effect on dynamic queues",
    ),
    (
        "a delay of claims by weight",
        partition(
            "queues: \n- name: a\n  submitacl: '*'\n  properties:\n    preemption.delay: 5s  # <-\n"
            "preemption: {entitlement: proportional}"
        ),
        "properties.preemption.delay",
        "has no effect with",
    ),
    (
        "a delay of claims by weight where asks replace others of their queue",
        partition(
            "queues: \n- name: a\n  submitacl: '*'\n  properties:\n    preemption.delay: 5s  # <-\n"
            "preemption: {entitlement: proportional, policies: [guaranteed, in-queue]}"
        ),
        "properties.preemption.delay",
        "counts for policy in-queue alone with",
    ),
    (
        "a weight without proportion",
        below("- name: a\n  weight: 2  # <-"),
        "weight",
        "counts only with",
    ),
    (
        "a limit for every user",
        below("- name: a\n  limits:\n  - users:\n    - u\n    - '*'  # <-\n    maxapplications: 1"),
        "limits[0].users[1]",
        "every single user",
    ),
    (
        "nobody may submit",
        partition("queues:  # <-\n- name: a"),
        "partitions[0].queues",
        "has a submitacl",
    ),
    (
        "nobody below root",
        tops("- name: root  # <-\n  queues: [{name: a}]"),
        "queues[0]",
        "has a submitacl",
    ),
    (
        "one branch without access",
        tops("- {name: a, submitacl: u}\n- name: b  # <-\n  queues: [{name: c}]"),
        "queues[1].submitacl",
        "has a submitacl",
    ),
    (
        "a filter that denies everybody",
        partition(
            "queues: [{name: root, submitacl: '*'}]\nplacementrules:\n- name: user\n  filter: {type: deny}  # <-"
        ),
        "placementrules[0].filter",
        "denies everybody",
    ),
    (
        "a parent's filter that denies everybody",
        partition(
            "queues: [{name: root, submitacl: '*'}]\nplacementrules:\n- name: user\n  parent:\n"
            "    name: user\n    filter: {type: deny}  # <-"
        ),
        "placementrules[0].parent.filter",
        "denies everybody",
    ),
    (
        "a value without meaning",
        partition(
            "queues: [{name: root, submitacl: '*'}]\nplacementrules:\n- name: user\n  value: x  # <-"
        ),
        "placementrules[0].value",
        "takes no value",
    ),
    (
        "job keys without the policy",
        preemption("job: {gathering: 5s, victimgang: avoid}  # <-"),
        "preemption.job",
        "is not listed",
    ),
    (
        "proportion without its entitlement",
        preemption("proportion: {}  # <-"),
        "proportion",
        "is not proportional",
    ),
    ("soft delivery", preemption("delivery: soft  # <-"), "delivery", "only marked"),
    (
        "soft delivery of jobs",
        preemption("policies: [job]\njob:\n  podShouldBeDeletedWhenPreempted: false  # <-"),
        "job.podShouldBeDeletedWhenPreempted",
        "only marked",
    ),
    (
        "a label that single asks need, too",
        preemption(
            "policies: [guaranteed, job, in-queue]\njob:\n  disableDefaultTriggerPreemption: true  # <-"
        ),
        "job.disableDefaultTriggerPreemption",
        "also those of `guaranteed` and `in-queue`",
    ),
    (
        "a label that those who replace others need, too",
        preemption(
            "policies: [job, in-queue]\njob:\n  disableDefaultTriggerPreemption: true  # <-"
        ),
        "job.disableDefaultTriggerPreemption",
        "also those of `in-queue`",
    ),
    (
        "a pace without rounds",
        preemption("pace: {perqueue: 10%}  # <-"),
        "pace",
        "neither rounds.interval nor pace.window",
    ),
    (
        "a window without a budget",
        preemption("pace: {perround: 0, window: 1m}  # <-"),
        "pace.window",
        "there is no budget",
    ),
    (
        "a window within the interval",
        preemption("rounds: {interval: 1m}\npace: {window: 1m}  # <-"),
        "pace.window",
        "is no longer than rounds.interval",
    ),
    (
        "a part of the over-use without rounds",
        preemption("pace: {window: 1m, naturaltermination: 20%}  # <-"),
        "pace.naturaltermination",
        "rounds.interval is not set",
    ),
    (
        "a part of the over-use that is all of it",
        preemption("rounds: {interval: 3s}\npace: {naturaltermination: 100%}  # <-"),
        "pace.naturaltermination",
        "100% is all of the over-use",
    ),
    (
        "an order of quotas that nobody enforces",
        preemption("order: {quota: [age]}  # <-"),
        "order.quota",
        "quotas are not enforced",
    ),
    (
        "an order of jobs that nobody plans for",
        preemption("order: {job: [job]}  # <-"),
        "order.job",
        "`job` is not listed",
    ),
    (
        "an order of trims without proportion",
        preemption("order: {trim: [age]}  # <-"),
        "order.trim",
        "is not proportional",
    ),
    (
        "an order of required nodes that are not served",
        preemption("policies: [guaranteed]\norder: {required-node: [size]}  # <-"),
        "order.required-node",
        "`required-node` is not listed",
    ),
    ("a short expiry", preemption("expiry: 30s  # <-"), "expiry", "30s is shorter"),
    (
        "firm pods broken",
        preemption("policies: [required-node, job]\nfirmbreak: true  # <-"),
        "firmbreak",
        "may be broken",
    ),
    (
        "firm pods broken without jobs",
        preemption("firmbreak: true  # <-"),
        "firmbreak",
        "may be broken",
    ),
    (
        "firm pods that stop a DaemonSet",
        preemption("policies: [required-node, job]\nfirmbreak: false  # <-"),
        "firmbreak",
        "are never broken",
    ),
    (
        "a shadow that differs in nothing",
        preemption("trigger: after\nshadow: {trigger: after}  # <-"),
        "shadow",
        "decides nothing else",
    ),
    (
        "a quota in the shadow",
        preemption("shadow: {trigger: after, quotapreemptionenabled: true}  # <-"),
        "shadow.quotapreemptionenabled",
        "has no effect in a shadow",
    ),
    (
        "an expiry in the shadow",
        preemption("shadow: {trigger: after, expiry: 5m}  # <-"),
        "shadow.expiry",
        "has no effect in a shadow",
    ),
    (
        "a shadow that only observes",
        preemption("shadow: {trigger: after, observeonly: true}  # <-"),
        "shadow.observeonly",
        "has no effect in a shadow",
    ),
)
SILENT = cases(
    ("all of root", tops("- {name: root, submitacl: '*'}")),
    (
        "one sibling without a guarantee",
        below(
            "- name: a\n  resources: {guaranteed: {memory: 10}}\n  queues:\n"
            "  - {name: b, resources: {guaranteed: {memory: 4}}}\n  - {name: c}"
        ),
    ),
    (
        "siblings that share all",
        below(
            "- name: a\n  resources: {guaranteed: {memory: 9}}\n  queues:\n"
            "  - {name: b, resources: {guaranteed: {memory: 4}}}\n"
            "  - {name: c, resources: {guaranteed: {memory: 5}}}"
        ),
    ),
    (
        "max equal to the guarantee without a delay",
        below("- {name: a, resources: {guaranteed: {x: 5}, max: {x: 5}}}"),
    ),
    (
        "max of 0 equal to no guarantee",
        quota("- {name: a, resources: {guaranteed: {memory: 5}, max: {memory: 6}}}"),
    ),
    ("a minute under resources", quota("- name: a\n  resources: {quota.preemption.delay: 60}")),
    (
        "no delay under resources",
        quota("- name: a\n  resources: {quota.preemption.delay: 0}", on=False),
    ),
    ("seconds under properties", quota("- name: a\n  properties: {quota.preemption.delay: 5s}")),
    ("an inherited delay is warned of once", quota("- {name: a, queues: [{name: b}]}", on=False)),
    (
        "a template at a parent",
        below("- {name: a, parent: true, childtemplate: {maxapplications: 1}}"),
    ),
    (
        "a weight in the shadow",
        partition(
            "queues: [{name: a, submitacl: '*', weight: 2}]\npreemption: {shadow: {entitlement: proportional}}"
        ),
    ),
    ("access above", below("- {name: a, queues: [{name: b}]}")),
    ("access below", tops("- name: root\n  queues: [{name: a, queues: [{name: b, adminacl: u}]}]")),
    (
        "a filter that lets everybody in",
        partition(
            "queues: [{name: root, submitacl: '*'}]\nplacementrules: [{name: user, filter: {}}]"
        ),
    ),
    (
        "a fence on root",
        tops("- {name: root, submitacl: '*', properties: {preemption.policy: fence}}"),
    ),
    ("replacement in the queue", preemption("policies: [in-queue]")),
    ("a shadow that differs", preemption("shadow: {trigger: after}")),
    ("gathering, which counts for all gangs", preemption("job: {gathering: 5s}")),
    ("jobs alone", preemption("policies: [job]\njob: {gathering: 5s}")),
    (
        "jobs that need a label, alone",
        preemption("policies: [job]\njob: {disableDefaultTriggerPreemption: true}"),
    ),
    (
        "a label that nobody needs",
        preemption("policies: [guaranteed, job]\njob: {disableDefaultTriggerPreemption: false}"),
    ),
    ("jobs of the shadow", preemption("job: {gathering: 5s}\nshadow: {policies: [job]}")),
    ("proportion", preemption("entitlement: proportional\nproportion: {}")),
    ("proportion of the shadow", preemption("proportion: {}\nshadow: {entitlement: proportional}")),
    ("an expiry of a minute", preemption("expiry: 1m")),
    ("a paced round", preemption("rounds: {interval: 3s}\npace: {perround: 10%}")),
    ("a window alone", preemption("pace: {perround: 10%, window: 1m}")),
    (
        "a part of the over-use",
        preemption("rounds: {interval: 3s}\npace: {perround: 0, naturaltermination: 20%}"),
    ),
    ("a dead zone alone", preemption("pace: {perround: 0, deadzone: 10%}")),
    ("an order of claims", preemption("order: {claim: [lost-work]}")),
    ("an order of quotas", preemption("quotapreemptionenabled: true\norder: {quota: [size]}")),
    ("an order of the shadow", preemption("order: {job: [job]}\nshadow: {policies: [job]}")),
)


@pytest.mark.parametrize(("text", "path", "words"), WARNED)
def test_a_warning_names_its_line_and_says_what_will_happen(
    text: str, path: str, words: str
) -> None:
    assert_problem(text, "warning", path, words)


@pytest.mark.parametrize("text", [row.values[0] for row in SILENT], ids=[row.id for row in SILENT])
def test_what_is_in_order_gives_no_warning(text: str) -> None:
    assert problems(text) == []


def test_a_warning_does_not_hide_an_error_nor_stand_beside_one_of_another_queue() -> None:
    text = below("- name: a\n  weight: 2\n- name: b\n  resources: {max: {memory: x}}  # <-")
    assert [(one.severity, one.line) for one in problems(text)] == [("error", marked_line(text))]


def test_a_template_that_never_counts_is_warned_of_once() -> None:
    (warning,) = problems(below("- {name: a, childtemplate: {resources: {max: {gpu: 0}}}}"))
    assert warning.path.endswith("childtemplate")


def test_a_delay_of_seconds_is_answered_with_the_minutes() -> None:
    (warning,) = problems(quota("- name: a\n  resources: {quota.preemption.delay: 5}"))
    assert warning.consequence.endswith("minutes are written 300")
