"""A story: a configuration, a series of events for the core, and the core's decisions at each step.

Reading is strict: an unknown or repeated key, an unknown word or a repeated title is an error, so that a misspelt
expectation cannot be mistaken for one that holds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

HERE = Path(__file__).parent


class Step(BaseModel):
    """One instant: the events, the decisions of the core, and the state afterwards.

    When ``then`` is None, the decisions are not checked. Each further key checks one kind of query.
    """

    model_config = ConfigDict(extra="forbid")

    at: int | None = None
    do: list[str] = Field(default_factory=list)
    then: list[str] | None = None
    queues: list[dict[str, Any]] | None = None
    """The queues below root of another configuration, which is applied."""
    partition: dict[str, Any] | None = None
    """The other settings of the partition in that configuration; None means the settings of the story."""
    shadow: list[str] | None = None
    """The decisions of the shadow, as `x1 only-shadow n1 y1|y2 ~ reason`: the live choice, a slash, the shadow's choice."""
    would: dict[str, str] = Field(default_factory=dict)
    """What the shadow would do for a waiting ask: the rule that prevents a decision, or the node."""
    reserved: dict[str, list[str]] | None = None
    waits: dict[str, str] = Field(default_factory=dict)
    verdicts: dict[str, str] = Field(default_factory=dict)
    """Why preemption does not help a waiting ask: the rule, then the nearest node and what is missing there."""
    spared: dict[str, list[str]] = Field(default_factory=dict)
    """Some of the rules that protected candidates, each with the candidates' queue, by beneficiary of an open decision."""
    stood: dict[str, list[str]] = Field(default_factory=dict)
    """Why the latest decisions did not evict a running allocation.

    This is the rule, the place of the allocation among the candidates, the first key that differs with both values,
    and the victim or the node that was chosen.
    """
    taken_from: dict[str, list[str]] = Field(default_factory=dict)
    """The victims' queues with use, entitlement and max by type, by beneficiary or by queue of a quota run."""
    usage: dict[str, dict[str, int]] = Field(default_factory=dict)
    promised: dict[str, dict[str, int]] = Field(default_factory=dict)
    leaving: dict[str, dict[str, int]] = Field(default_factory=dict)
    """The part of a queue's usage that is being released."""
    deserved: dict[str, dict[str, int]] = Field(default_factory=dict)
    entitled: dict[str, dict[str, int]] = Field(default_factory=dict)
    allocated: dict[str, dict[str, int]] = Field(default_factory=dict)
    """The allocated share, as it is reported (W5)."""
    preempting: dict[str, dict[str, int]] = Field(default_factory=dict)
    standing: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Types in which a queue is over or under its deserved share (W4); in the other types it is even."""
    limits: dict[str, dict[str, int]] = Field(default_factory=dict)
    guaranteed: dict[str, dict[str, int]] = Field(default_factory=dict)
    states: dict[str, str] = Field(default_factory=dict)
    applications: dict[str, str] = Field(default_factory=dict)
    free: dict[str, dict[str, int]] = Field(default_factory=dict)
    due: int | None = None


class Story(BaseModel):
    """One test case. ``rule`` names the section or rule; ``also`` adds kinds of decisions to those that `then` lists."""

    model_config = ConfigDict(extra="forbid")

    title: str
    rule: str
    queues: list[dict[str, Any]] = Field(default_factory=list)
    partition: dict[str, Any] = Field(default_factory=dict)
    config: dict[str, Any] | None = None
    register_first: bool = True
    also: list[str] = Field(default_factory=list)
    steps: list[Step]


class _StrictLoader(yaml.SafeLoader):
    """A YAML loader that refuses repeated keys."""


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    pairs = [(loader.construct_object(key, deep=True), value) for key, value in node.value]
    keys = [key for key, _ in pairs]
    doubled = [key for key in keys if keys.count(key) > 1]
    if doubled:
        raise ValueError(f"keys stand twice: {doubled} at {node.start_mark}")
    return {key: loader.construct_object(value, deep=True) for key, value in pairs}


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(text: str) -> list[Story]:
    """Return all stories of one file."""
    return [Story.model_validate(each) for each in yaml.load(text, _StrictLoader)]  # noqa: S506


def stories() -> Iterator[tuple[str, Story]]:
    """Yield every story of this folder with the name of its file."""
    for path in sorted(HERE.glob("*.yaml")):
        for story in read(path.read_text("utf-8")):
            yield path.stem, story


def configuration_text(
    story: Story,
    queues: list[dict[str, Any]] | None = None,
    partition: dict[str, Any] | None = None,
) -> str:
    """Return the `queues.yaml` of a story: its queues below a root to which every user may submit."""
    if story.config is not None:
        return yaml.safe_dump(story.config, sort_keys=False)
    root = {"name": "root", "submitacl": "*", "queues": story.queues if queues is None else queues}
    rules = [{"name": "provided", "create": False}]
    given = story.partition if partition is None else partition
    whole = {"name": "default", "placementrules": rules, **given, "queues": [root]}
    return yaml.safe_dump({"partitions": [whole]}, sort_keys=False)
