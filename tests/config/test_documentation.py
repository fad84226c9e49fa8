"""docs/configuration.md names every key that can be written, and its example has no problem."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from server.config import load, shape
from server.config.properties import PROPERTIES

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
SECTIONS: dict[str, tuple[type[BaseModel], ...]] = {
    "Partition": (shape.Partition, shape.NodeSort, shape.Reservations),
    "Queue": (shape.Queue, shape.Template, shape.Resources),
    "Limit": (shape.Limit,),
    "Placement rule": (shape.Rule, shape.Filter),
    "Preemption": (
        shape.LivePreemption,
        shape.Proportion,
        shape.Rounds,
        shape.Pace,
        shape.Job,
        shape.Order,
    ),
}
FOLDED = {
    "resources",
    "nodesortpolicy",
    "reservations",
    "filter",
    "proportion",
    "rounds",
    "pace",
    "job",
    "order",
}
"""Sections that the page writes out key by key."""


def documented(title: str) -> set[str]:
    """Return the keys in the table under a heading, without the names of their sections."""
    table = PAGE.split(f"### {title}", 1)[1].split("\n###", 1)[0].split("\n## ", 1)[0]
    names = [
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(.*?)`", row)
    ]
    prefixes = "|".join([*FOLDED, "childtemplate"])
    return {re.sub(rf"^(?:{prefixes})\.", "", name) for name in names}


@pytest.mark.parametrize("title", SECTIONS)
def test_every_key_of_a_section_is_documented_and_no_other(title: str) -> None:
    keys = {
        info.alias or name for model in SECTIONS[title] for name, info in model.model_fields.items()
    }
    assert keys - FOLDED == documented(title) - FOLDED


def test_every_property_is_documented_and_no_other() -> None:
    without_effect = {"application.unschedasks.backoff", "application.unschedasks.backoff.delay"}
    assert documented("Properties of a queue") == {*PROPERTIES} | without_effect


def test_the_worked_example_is_in_order() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    configuration, problems = load(example)
    assert configuration is not None
    told = [(problem.severity, problem.path) for problem in problems]
    assert told == [("warning", "partitions[0].limits[0].users[0]")]


def test_the_problems_shown_are_worded_as_they_are_reported() -> None:
    text = """partitions:
  - preemption: {quotapreemptionenabled: true}
    queues:
      - name: root
        submitacl: '*'
        queues:
          - name: a
            resources: {SECTION}
"""
    for section in ("max: {memory: 200GB}", "quota.preemption.delay: 5"):
        _, (problem,) = load(text.replace("SECTION", section), "conf/queues.yaml")
        shown = re.sub(r":\d+:", ":LINE:", str(problem))
        assert shown in re.sub(r":\d+:", ":LINE:", PAGE)
