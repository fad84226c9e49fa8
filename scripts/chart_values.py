"""Write values.yaml and the table in README.md of the Helm chart from its values.schema.json.

Run it after a change of the schema: ``python -m scripts.chart_values``. A test compares both files with the schema.
"""

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

CHART: Final = Path(__file__).parents[1] / "deploy" / "chart"
SCHEMA: Final = CHART / "values.schema.json"
VALUES: Final = CHART / "values.yaml"
README: Final = CHART / "README.md"
WIDTH: Final = 120
BEGIN, END = "<!-- values: begin -->", "<!-- values: end -->"
HEAD: Final = """\
# Values of the chart evenhand. `python -m scripts.chart_values` writes this file from values.schema.json.

"""


class Value(NamedTuple):
    """One value of the chart, as a row of the table."""

    path: str
    kind: str
    default: object
    meaning: str


def values(node: dict[str, Any], path: str = "") -> Iterator[Value]:
    """Yield the values of a schema in its order. An object without fixed keys is one value."""
    for name, below in node["properties"].items():
        here = f"{path}.{name}".removeprefix(".")
        if "properties" in below and "default" not in below:
            yield from values(below, here)
        else:
            yield Value(here, _kind(below), below["default"], below["description"])


def _kind(node: dict[str, Any]) -> str:
    if "enum" in node:
        return " or ".join(json.dumps(choice) for choice in node["enum"])
    kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
    return " or ".join(kinds)


def values_yaml(schema: dict[str, Any]) -> str:
    """Return the text of values.yaml: every value with its default, below its description."""
    return HEAD + "\n".join(_lines(schema, 0)) + "\n"


def _lines(node: dict[str, Any], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, below in node["properties"].items():
        comment = textwrap.wrap(below["description"], WIDTH - len(indent) - 2)
        yield from (f"{indent}# {line}" for line in comment)
        if "properties" in below and "default" not in below:
            yield f"{indent}{name}:"
            yield from _lines(below, depth + 1)
        else:
            yield textwrap.indent(_assigned(name, below["default"]), indent)
        if depth == 0:
            yield ""


def _assigned(name: str, default: object) -> str:
    if isinstance(default, str) and "\n" in default:
        return f"{name}: |\n{textwrap.indent(default, '  ')}".rstrip("\n")
    if isinstance(default, dict) and default:
        return yaml.safe_dump({name: default}, sort_keys=False).rstrip("\n")
    return f"{name}: {json.dumps(default)}"


def table(schema: dict[str, Any]) -> str:
    """Return the table of values in Markdown."""
    rows = (
        f"| `{value.path}` | {_cell(value.kind)} | {_shown(value.default)} | {_cell(value.meaning)} |"
        for value in values(schema)
    )
    return "\n".join(("| value | type | default | meaning |", "|---|---|---|---|", *rows))


def _shown(default: object) -> str:
    if isinstance(default, str) and "\n" in default:
        return "a queue for each namespace"
    return f"`{_cell(json.dumps(default))}`"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def readme(text: str, schema: dict[str, Any]) -> str:
    """Return the text of README.md with the table of this schema."""
    between = re.compile(f"{BEGIN}.*{END}", re.DOTALL)
    whole = f"{BEGIN}\n{table(schema)}\n{END}"
    return between.sub(lambda _: whole, text)


def main() -> None:
    """Write both files."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    VALUES.write_text(values_yaml(schema), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8"), schema), encoding="utf-8")


if __name__ == "__main__":
    main()
