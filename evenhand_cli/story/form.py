"""The form of a story: a configuration, and a series of steps with events for the core and the decisions that are expected.

Reading is strict (`reading.py`): unknown or repeated keys, and unknown words, are errors. Because of this strictness
a misspelt expectation is an error, and does not count as fulfilled.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field

from server.config.document import Written

AT_MAX: Final = 10 * 365 * 86_400_000
"""The last instant of a story: ten years after its start, in milliseconds."""
_TEXT: Final = "tag:yaml.org,2002:str"


class Step(BaseModel):
    """One instant of a story: the events, the expected decisions of the core, and the expected state afterwards.

    When ``then`` is None, the decisions are not checked. Each key after ``then`` checks the core's answers to one kind
    of query.
    """

    model_config = ConfigDict(extra="forbid")

    at: Annotated[int, Field(ge=0, le=AT_MAX)] | None = None
    do: list[str] = Field(default_factory=list)
    then: list[str] | None = None
    queues: list[dict[str, Any]] | None = None
    """The queues of another configuration that this step applies, given as the children of root."""
    partition: dict[str, Any] | None = None
    """The settings of the partition, apart from its queues, in the configuration that this step applies.

    None means the settings of the story.
    """
    shadow: list[str] | None = None
    """The decisions under the shadow settings, as `x1 only-shadow n1 y1|y2 ~ reason`.

    If there is a slash, the live choice is before the slash, and the choice of the shadow after it.
    """
    would: dict[str, str] = Field(default_factory=dict)
    """The outcome for a waiting ask under the shadow settings: the node that it would get, or the forbidding rule."""
    reserved: dict[str, list[str]] | None = None
    waits: dict[str, str] = Field(default_factory=dict)
    verdicts: dict[str, str] = Field(default_factory=dict)
    """Why preemption does not help a waiting ask: the rule, then the nearest node and the amounts that this node lacks."""
    spared: dict[str, list[str]] = Field(default_factory=dict)
    """For each preemptor of an open decision: some of the rules that protected candidates, each with the candidates' queue."""
    stood: dict[str, list[str]] = Field(default_factory=dict)
    """Why the latest decisions did not evict a running allocation.

    The value has the rule, the rank of the allocation among the candidates, and the victim or node that was chosen
    instead. The value also has the first sort key in which the allocation and the chosen victim differ, with both
    values.
    """
    taken_from: dict[str, list[str]] = Field(default_factory=dict)
    """For each preemptor, or for each queue with a quota run: the queues of the victims, with usage, entitlement and max by type."""
    usage: dict[str, dict[str, int]] = Field(default_factory=dict)
    promised: dict[str, dict[str, int]] = Field(default_factory=dict)
    leaving: dict[str, dict[str, int]] = Field(default_factory=dict)
    """For each queue: the part of the usage that is being released."""
    deserved: dict[str, dict[str, int]] = Field(default_factory=dict)
    entitled: dict[str, dict[str, int]] = Field(default_factory=dict)
    allocated: dict[str, dict[str, int]] = Field(default_factory=dict)
    """For each queue: the allocated share by resource type, as the core reports it (W5)."""
    preempting: dict[str, dict[str, int]] = Field(default_factory=dict)
    standing: dict[str, dict[str, str]] = Field(default_factory=dict)
    """For each queue: the types in which the queue is over or under its deserved share (W4).

    In all other types, the queue is even.
    """
    limits: dict[str, dict[str, int]] = Field(default_factory=dict)
    guaranteed: dict[str, dict[str, int]] = Field(default_factory=dict)
    states: dict[str, str] = Field(default_factory=dict)
    applications: dict[str, str] = Field(default_factory=dict)
    free: dict[str, dict[str, int]] = Field(default_factory=dict)
    due: int | None = None


class Story(BaseModel):
    """A story of a YAML file.

    ``rule`` names the rule that the story shows. ``also`` adds kinds of decisions to the kinds that `then` lists.
    """

    model_config = ConfigDict(extra="forbid")

    title: str
    rule: str = ""
    queues: list[dict[str, Any]] = Field(default_factory=list)
    partition: dict[str, Any] = Field(default_factory=dict)
    config: dict[str, Any] | None = None
    register_first: bool = True
    also: list[str] = Field(default_factory=list)
    steps: list[Step]


@dataclass(frozen=True, slots=True)
class Text:
    """A configuration as text. ``line`` is the line of the file at which the text begins.

    A ``made`` text is not written in the file: it is made from the keys `queues` and `partition` of a story.
    """

    text: str
    line: int
    made: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """A step of a story, with the lines of the file in which it is written.

    ``applied`` is the configuration that is applied before the step's events, and ``lines`` are the lines of `do`.
    """

    step: Step
    line: int
    lines: tuple[int, ...]
    applied: Text | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A story with its place in a file and its parsed steps, ready to run.

    ``number`` counts the stories of the file ``source`` from 1.
    """

    source: str
    number: int
    title: str
    line: int
    configuration: Text
    moments: tuple[Moment, ...]
    rule: str = ""
    also: tuple[str, ...] = ()
    register_first: bool = True


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes the scalars of a text in the form in which they were read."""


def _written(dumper: _Dumper, value: Written) -> yaml.ScalarNode:
    text, as_plain = str(value), (True, False)
    tag = dumper.resolve(yaml.ScalarNode, text, as_plain) if value.number else _TEXT  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(tag, text)


_Dumper.add_representer(Written, _written)


def configuration_text(
    story: Story,
    queues: list[dict[str, Any]] | None = None,
    partition: dict[str, Any] | None = None,
) -> str:
    """Return the `queues.yaml` of a story: its queues below a root to which every user may submit."""
    if story.config is not None:
        return _dumped(story.config)
    root = {"name": "root", "submitacl": "*", "queues": story.queues if queues is None else queues}
    rules = [{"name": "provided", "create": False}]
    given = story.partition if partition is None else partition
    whole = {"name": "default", "placementrules": rules, **given, "queues": [root]}
    return _dumped({"partitions": [whole]})


def _dumped(value: dict[str, Any]) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False)
