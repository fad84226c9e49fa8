"""The shape of `queues.yaml` as pydantic models: which keys exist where, and of which type (design 1.11).

The models check each key alone. Rules that concern several keys are checked later, by the modules that turn these shapes into
values of `server.model`. A key without a value counts as not written.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from server.config import names, quantities
from server.config.document import Written
from server.model.comparing import Key
from server.model.policies import LISTED
from server.model.quota import NOBODY, QUOTA_DELAY, Acl

COUNT_MAX: Final = (1 << 31) - 1

if TYPE_CHECKING:
    PolicyName = str
else:
    PolicyName = Literal[LISTED]
    """A policy that `preemption.policies` may list."""


def _number(read: Callable[[str], int]) -> Callable[[object], int]:
    """Return a validator that accepts only unquoted numbers, and converts them with ``read``."""

    def check(value: object) -> int:
        if not isinstance(value, Written):
            raise ValueError("must be a number")  # noqa: TRY004  pydantic collects only ValueError
        return read(value)

    return check


def _text(read: Callable[[str], Any]) -> Callable[[object], Any]:
    """Return a validator that accepts text and numbers as written, and converts them with ``read``."""

    def check(value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(  # noqa: TRY004  pydantic collects only ValueError
                "must be text: put it in quotes" if isinstance(value, bool) else "must be text"
            )
        return read(value)

    return check


def _positive_duration(written: str) -> int:
    if (duration := quantities.duration_ms(written)) <= 0:
        raise ValueError(f"the duration {written!r} must be above 0")
    return duration


def _duration(written: str) -> int:
    if (duration := quantities.duration_ms(written)) < 0:
        raise ValueError(f"the duration {written!r} is negative")
    return duration


Text = Annotated[str, BeforeValidator(_text(str))]
Count = Annotated[int, BeforeValidator(_number(lambda text: quantities.whole(text, 0, COUNT_MAX)))]
Weight = Annotated[
    int, BeforeValidator(_number(lambda text: quantities.whole(text, 1, quantities.WEIGHT_MAX)))
]
Thousandths = Annotated[int, BeforeValidator(_number(quantities.thousandths))]
Duration = Annotated[int, BeforeValidator(_text(_duration))]
PositiveDuration = Annotated[int, BeforeValidator(_text(_positive_duration))]
Share = Annotated[int, BeforeValidator(_text(quantities.share_permyriad))]
AccessList = Annotated[Acl, BeforeValidator(_text(names.acl))]
TypeName = Annotated[str, AfterValidator(quantities.type_name)]
Quantities = dict[TypeName, Text]
"""Quantities by type, still as text: a quantity can be read only with the name of its type."""


class Section(BaseModel):
    """A mapping of the file. Unknown keys are refused, types are not converted, and known keys without a value are left out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        known = {info.alias or name for name, info in cls.model_fields.items()}
        return {key: value for key, value in data.items() if value is not None or key not in known}


class Resources(Section):
    """The section `resources` of a queue or of a child template."""

    guaranteed: Quantities = {}
    max: Quantities = {}
    quota_delay_s: Count | None = Field(default=None, alias=QUOTA_DELAY)


NO_RESOURCES: Final = Resources.model_validate({})


class Limit(Section):
    """One entry of `limits`. The key `limit` is a description for readers of the file."""

    limit: Text = ""
    users: list[Annotated[str, BeforeValidator(_text(names.user_or_wildcard))]] = []
    groups: list[Annotated[str, BeforeValidator(_text(names.group_or_wildcard))]] = []
    maxresources: Quantities = {}
    maxapplications: Count = 0


class Template(Section):
    """The section `childtemplate` of a parent queue."""

    maxapplications: Count = 0
    properties: dict[str, Text] = {}
    resources: Resources = NO_RESOURCES


class Queue(Section):
    """One queue with the queues below it."""

    name: Annotated[str, BeforeValidator(_text(names.queue_name))]
    parent: bool | None = None
    resources: Resources = NO_RESOURCES
    weight: Weight = 1
    maxapplications: Count = 0
    properties: dict[str, Text] = {}
    submitacl: AccessList = NOBODY
    adminacl: AccessList = NOBODY
    childtemplate: Template | None = None
    limits: list[Limit] = []
    queues: list["Queue"] = []


class Filter(Section):
    """The section `filter` of a placement rule."""

    type: Literal["allow", "deny"] = "allow"
    users: list[Text] = []
    groups: list[Text] = []


class Rule(Section):
    """One placement rule. `parent` is the rule that chooses the queue above."""

    name: Text
    value: Text = ""
    create: bool = False
    filter: Filter | None = None
    parent: "Rule | None" = None


class NodeSort(Section):
    """The section `nodesortpolicy` of a partition."""

    type: Literal["fair", "binpacking"] = "fair"
    resourceweights: dict[TypeName, Thousandths] = {}


class Proportion(Section):
    """The section `preemption.proportion`: the settings of shares by weight (W1 to W8)."""

    demandcap: bool = True
    overshoot: Literal["none", "last"] = "none"


class Rounds(Section):
    """The section `preemption.rounds`: the settings of preemption rounds (P1)."""

    interval: Duration = 0


class Pace(Section):
    """The section `preemption.pace`: the budget of evictions in a round (P5).

    If the section has no `perround`, the budget is 10 %.
    """

    perround: Share = 1_000
    perqueue: Share = 0
    perapplication: Share = 0
    window: Duration = 0
    deadzone: Share = 0
    naturaltermination: Share = 0


class Job(Section):
    """The section `preemption.job`: the settings of gangs (J1 to J3).

    `disableDefaultPreemptiable` is spelled as in the published interface.
    """

    disable_preemptible: bool = Field(default=False, alias="disableDefaultPreemptiable")
    disable_trigger: bool = Field(default=False, alias="disableDefaultTriggerPreemption")
    delete: bool | None = Field(default=None, alias="podShouldBeDeletedWhenPreempted")
    victimgang: Literal["whole", "avoid"] = "whole"
    gathering: Duration = 2_000


class Order(Section):
    """The section `preemption.order`: for each policy, the sort keys of victims that follow the fixed keys (V2)."""

    claim: list[Key] = []
    quota: list[Key] = []
    required_node: list[Key] = Field(default=[], alias="required-node")
    job: list[Key] = []
    trim: list[Key] = []


class Preemption(Section):
    """The keys that a partition's section `preemption` and its subsection `shadow` have in common (docs/configuration.md)."""

    enabled: bool = True
    quotapreemptionenabled: bool = False
    quotatimers: Literal["keep", "restart"] = "keep"
    policies: list[PolicyName] = []
    entitlement: Literal["guaranteed", "proportional"] = "guaranteed"
    proportion: Proportion | None = None
    trigger: Literal["before", "after"] = "before"
    equalpriority: Literal["allow", "never", "ignore"] = "allow"
    rounds: Rounds | None = None
    pace: Pace | None = None
    job: Job | None = None
    order: Order | None = None
    disruptionbudgets: Literal["respect", "prefer", "ignore"] = "prefer"
    delivery: Literal["delete", "evict", "soft"] = "delete"
    crossnode: Literal["never", "quota"] = "never"
    firmbreak: bool = False
    backoff: PositiveDuration = 15_000
    expiry: PositiveDuration = 600_000
    observeonly: bool = False

    @model_validator(mode="before")
    @classmethod
    def _pace_alone(cls, data: object) -> object:
        """Read the key `pace` without a value as an empty section, so that the defaults of the section apply."""
        if isinstance(data, dict) and "pace" in data and data["pace"] is None:
            return {**data, "pace": {}}
        return data


class LivePreemption(Preemption):
    """The section `preemption` of a partition.

    Its subsection `shadow` has settings that are evaluated, too, but whose plans are not carried out.
    """

    shadow: Preemption | None = None


class Reservations(Section):
    """The section `reservations` of a partition: the settings for nodes that are kept for large asks that have waited."""

    enabled: bool = True
    timeout: Duration = 600_000


class Partition(Section):
    """One entry of `partitions`."""

    name: Annotated[str, BeforeValidator(_text(names.partition_name))] = "default"
    queues: list[Queue]
    placementrules: list[Rule] = []
    limits: list[Limit] = []
    preemption: LivePreemption | None = None
    reservations: Reservations = Reservations()
    nodesortpolicy: NodeSort = NodeSort()
    usergroupresolver: Any = None
    ignorewarnings: list[Text] = []


class File(Section):
    """The whole file `queues.yaml`."""

    partitions: list[Partition] = Field(min_length=1)
