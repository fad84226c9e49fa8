"""Each setting of a queue is shown with its effective value and with the place where that value is set."""

from server.config import load
from server.core.core import Core
from server.core.queries import inspect
from server.model.events import ApplicationAdded, ConfigurationApplied, ManagerRegistered, NodeAdded
from server.model.queue_settings import Origin, SettingReport
from server.model.resources import resource
from tests.inspect.world import MANAGER, START

QUEUES = """
partitions:
  - name: default
    placementrules:
      - {name: provided, create: true}
    preemption: {quotapreemptionenabled: true}
    queues:
      - name: root
        submitacl: "*"
        properties: {preemption.policy: fence, application.sort.policy: fair}
        queues:
          - name: research
            weight: 3
            resources: {guaranteed: {vcore: 8}, max: {vcore: 16, memory: 4Gi}, quota.preemption.delay: 120}
            adminacl: "ann ops"
            properties: {preemption.policy: fence, preemption.delay: 5s, priority.offset: "7"}
            limits: [{users: ["*"], maxresources: {vcore: 4}}]
            queues:
              - {name: vision, properties: {preemption.delay: 3s, quota.preemption.miss: 5%}}
              - {name: nlp, maxapplications: 20}
          - name: closed
            properties: {preemption.policy: disabled}
            queues:
              - name: inner
              - {name: open, properties: {preemption.policy: default}}
          - name: tenants
            parent: true
            properties: {preemption.minruntime: 30s}
            childtemplate:
              maxapplications: 5
              resources: {max: {vcore: 2}}
              properties: {preemption.delay: 9s}
"""


def core(text: str = QUEUES) -> Core:
    configuration, problems = load(text, "queues.yaml")
    assert configuration is not None, problems
    made = Core(configuration)
    made.handle(ManagerRegistered(MANAGER, "1.0"), START)
    made.handle(NodeAdded(MANAGER, "n1", resource({"vcore": 100_000})), START)
    return made


def settings(made: Core, path: str) -> dict[str, SettingReport]:
    (found,) = inspect.queue_settings(made, "default", path, size=1)
    return {one.name: one for one in found.settings}


def where(made: Core, path: str, name: str) -> tuple[str, Origin, str]:
    one = settings(made, path)[name]
    return one.value, one.origin, one.queue


def test_a_queue_shows_what_it_sets_itself() -> None:
    made = core()
    assert where(made, "root.research", "guaranteed.vcore") == ("8", Origin.HERE, "")
    assert where(made, "root.research", "max.memory") == ("4Gi", Origin.HERE, "")
    assert where(made, "root.research", "weight") == ("3", Origin.HERE, "")
    assert where(made, "root.research.nlp", "maxapplications") == ("20", Origin.HERE, "")
    assert where(made, "root.research", "preemption.policy") == ("fence", Origin.HERE, "")
    assert where(made, "root.research", "priority.offset") == ("7", Origin.HERE, "")
    assert where(made, "root.research", "adminacl") == ("ann ops", Origin.HERE, "")
    assert where(made, "root.research", "limits") == ("user *: vcore=4", Origin.HERE, "")
    memory = settings(made, "root.research")["max.memory"]
    assert (memory.resource_type, memory.amount) == ("memory", 4 << 30)


def test_a_child_inherits_the_quota_delay_of_its_parent_in_either_spelling() -> None:
    made = core()
    assert where(made, "root.research", "quota.preemption.delay") == ("2m", Origin.HERE, "")
    inherited = ("2m", Origin.INHERITED, "root.research")
    assert where(made, "root.research.vision", "quota.preemption.delay") == inherited
    assert where(made, "root.tenants", "quota.preemption.delay") == ("0s", Origin.DEFAULT, "")


def test_what_no_queue_hands_down_is_the_default_below() -> None:
    made = core()
    for name, default in (
        ("preemption.policy", "default"),
        ("preemption.delay", "30s"),
        ("priority.offset", "0"),
        ("weight", "1"),
    ):
        assert where(made, "root.research.nlp", name) == (default, Origin.DEFAULT, ""), name
    most = where(made, "root.research.vision", "maxapplications")
    assert most == ("no limit", Origin.DEFAULT, "")
    own = where(made, "root.research.vision", "preemption.delay")
    assert own == ("3s", Origin.HERE, "")


def test_only_disabled_is_handed_down_of_the_preemption_policy() -> None:
    made = core()
    closed = ("disabled", Origin.INHERITED, "root.closed")
    assert where(made, "root.closed.inner", "preemption.policy") == closed
    assert where(made, "root.closed.open", "preemption.policy") == ("default", Origin.HERE, "")


def test_what_root_sets_of_the_policy_has_no_effect() -> None:
    one = settings(core(), "root")["preemption.policy"]
    assert (one.value, one.note) == ("default", "what root sets has no effect")


def test_what_everybody_above_allows_is_listed_beside_the_own_lists() -> None:
    made = core()
    (vision,) = inspect.queue_settings(made, "default", "root.research.vision", size=1)
    people = [
        (one.name, one.value, one.origin, one.queue)
        for one in vision.settings
        if one.name in {"limits", "submitacl", "adminacl"}
    ]
    assert people == [
        ("limits", "user *: vcore=4", Origin.INHERITED, "root.research"),
        ("submitacl", "*", Origin.INHERITED, "root"),
        ("adminacl", "ann ops", Origin.INHERITED, "root.research"),
    ]


def test_a_value_without_effect_says_why() -> None:
    made = core()
    delay = settings(made, "root.research")["preemption.delay"]
    assert (delay.value, delay.note) == ("5s", "counts on leaves alone")
    off = core(QUEUES.replace("preemption: {quotapreemptionenabled: true}", "preemption: {}"))
    quota = settings(off, "root.research.nlp")["quota.preemption.delay"]
    assert quota.note == "no effect: preemption.quotapreemptionenabled is not true"


def test_a_parent_shows_the_template_of_its_dynamic_queues() -> None:
    made = core()
    assert where(made, "root.tenants", "childtemplate.max.vcore") == ("2", Origin.HERE, "")
    assert where(made, "root.tenants", "childtemplate.maxapplications") == ("5", Origin.HERE, "")
    assert where(made, "root.tenants", "childtemplate.preemption.delay") == ("9s", Origin.HERE, "")


def test_a_dynamic_queue_names_the_template_and_the_tags_it_was_made_from() -> None:
    made = core()
    app = ApplicationAdded(MANAGER, "app", "root.tenants.blue", "default", "ann")
    made.handle(app, START)
    template = (Origin.TEMPLATE, "root.tenants")
    assert where(made, "root.tenants.blue", "max.vcore") == ("2", *template)
    assert where(made, "root.tenants.blue", "maxapplications") == ("5", *template)
    assert where(made, "root.tenants.blue", "preemption.delay") == ("9s", *template)
    inherited = ("30s", Origin.INHERITED, "root.tenants")
    assert where(made, "root.tenants.blue", "preemption.minruntime") == inherited
    sort = ("fair", Origin.INHERITED, "root")
    assert where(made, "root.tenants.blue", "application.sort.policy") == sort
    tags = {"namespace.resourcequota": '{"resources":{"vcore":{"value":1000}}}'}
    made.handle(
        ApplicationAdded(MANAGER, "two", "root.tenants.blue", "default", "ann", (), tags), START
    )
    assert where(made, "root.tenants.blue", "max.vcore") == ("1", Origin.TAG, "")
    assert where(made, "root.tenants.blue", "maxapplications") == ("5", *template)


def test_all_queues_are_listed_parents_first_in_pages() -> None:
    made = core()
    paths = [one.path for one in inspect.queue_settings(made, "default")]
    assert paths[:3] == ["root", "root.closed", "root.closed.inner"]
    page = inspect.queue_settings(made, "default", start=1, size=2)
    assert [one.path for one in page] == paths[1:3]
    assert inspect.queue_settings(made, "default", "root.nowhere") == []


def test_settings_stay_after_another_configuration() -> None:
    made = core()
    other, _ = load(QUEUES.replace("preemption.minruntime: 30s", "preemption.minruntime: 1m"))
    assert other is not None
    made.handle(ConfigurationApplied(other, "test"), START)
    assert where(made, "root.tenants", "preemption.minruntime") == ("1m", Origin.HERE, "")
