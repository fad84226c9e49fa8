"""Write evenhand_cli/rules.json, the rules of docs/rules as `evenhand explain RULE` shows them.

Run it after a change of a page: ``python -m scripts.rule_texts``. A test compares the file with the pages.
"""

import json
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ROOT / "docs" / "rules"
FILE: Final = ROOT / "evenhand_cli" / "rules.json"

_HEADING: Final = re.compile(r"^### ([A-Z]\d{1,2})$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_LABELS: Final = {"Reason": "reason", "Source": "source"}
_LABEL: Final = re.compile(r"\*(Reason|Source|Example|Examples):\*")


def rules() -> dict[str, dict[str, object]]:
    """Return each rule by its id, in the order of pages and rules: statement, paragraphs, reason, source and page."""
    found: dict[str, dict[str, object]] = {}
    for page in sorted(PAGES.glob("*.md")):
        parts = _HEADING.split(page.read_text(encoding="utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            own = text.partition("\n## ")[0]
            found[name] = {**_rule(own), "page": f"docs/rules/{page.name}#{name.lower()}"}
    return dict(sorted(found.items(), key=lambda one: (one[0][0], int(one[0][1:]))))


def _rule(text: str) -> dict[str, object]:
    before, *rest = _LABEL.split(text)
    labelled = {
        _LABELS[label]: _plain(value)
        for label, value in zip(rest[::2], rest[1::2], strict=True)
        if label in _LABELS
    }
    statement, paragraphs = _statement([_plain(one) for one in _paragraphs(before)])
    return {"statement": statement, "paragraphs": paragraphs, **labelled}


def _statement(paragraphs: list[str]) -> tuple[str, list[str]]:
    """Return the statement of a rule, which is its bold beginning, and its other paragraphs."""
    first = paragraphs[0]
    assert first.startswith("**"), f"a rule begins with its statement in bold: {first}"
    statement, _, rest = first[2:].partition("**")
    return statement.strip(), [one for one in (rest.strip(), *paragraphs[1:]) if one]


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs and list items of a page's text; tables and examples are only on the page."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    found: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [line for line in block.splitlines() if not line.startswith("|")]
        for line in lines:
            item = re.match(r"\s*(?:[-*]|\d+\.) ", line)
            if item or not found or line is lines[0]:
                found.append(line.strip())
            else:
                found[-1] += " " + line.strip()
    return [one for one in found if one]


def _plain(text: str) -> str:
    """Return text without links, on one line."""
    return " ".join(_LINK.sub(r"\1", text).split())


def main() -> None:
    """Write the file."""
    FILE.write_text(json.dumps(rules(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
