"""What a page tells its reader to do in a browser: blocks `browser`, one act in each line.

    open ADDRESS            click NAME              see TEXT
    type TEXT in LABEL      change TEXT to TEXT in LABEL

`click` means the first button, link or heading that opens whose name begins with these words. `see` waits until the page shows the text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from playwright.sync_api import Page, expect

from evenhand_cli.story.reading import Block

KIND: Final = "browser"
WAIT_MS: Final = 120_000
_TYPE: Final = re.compile(r"(.+) in (.+)")
_CHANGE: Final = re.compile(r"(.+) to (.+) in (.+)")


@dataclass(frozen=True)
class Act:
    """One act, with the line of the page on which it is."""

    line: int
    verb: str
    rest: str


def acts_of(block: Block) -> Iterator[Act]:
    """Yield the acts of a block in order."""
    for offset, text in enumerate(block.text.splitlines()):
        verb, _, rest = text.partition(" ")
        yield Act(block.line + offset, verb, rest.strip())


class Reader:
    """A reader with a browser, in which the address that the page names leads to another one."""

    def __init__(self, page: Page, named: str, real: str) -> None:
        self._page, self._named, self._real = page, named, real
        page.set_default_timeout(WAIT_MS)

    def follow(self, act: Act) -> None:
        """Carry out an act. Raises an error if the page does not have what the act names."""
        acts = {
            "open": self._open,
            "click": self._click,
            "see": self._see,
            "type": self._type,
            "change": self._change,
        }
        acts[act.verb](act.rest)

    def _open(self, address: str) -> None:
        assert address.startswith(self._named), address
        self._page.goto(self._real + address.removeprefix(self._named))

    def _click(self, name: str) -> None:
        # Escaped so that Python and the browser read the same.
        words = re.sub(r"[^\w ]", lambda one: f"\\x{ord(one[0]):02x}", name, flags=re.ASCII)
        begins = re.compile(rf"^\s*{words}(\s|$)")
        page = self._page
        kinds = [
            page.get_by_role("button", name=begins),
            page.get_by_role("link", name=begins),
            page.locator("summary", has_text=begins),
        ]
        seen = [one.locator("visible=true") for one in kinds]
        seen[0].or_(seen[1]).or_(seen[2]).first.wait_for()
        next(one for one in seen if one.count()).first.click()

    def _see(self, text: str) -> None:
        expect(self._page.locator("#view")).to_contain_text(text, timeout=WAIT_MS)

    def _type(self, rest: str) -> None:
        found = _TYPE.fullmatch(rest)
        assert found is not None, rest
        self._page.get_by_label(found[2], exact=True).fill(found[1])

    def _change(self, rest: str) -> None:
        found = _CHANGE.fullmatch(rest)
        assert found is not None, rest
        field = self._page.get_by_label(found[3])
        before = field.input_value()
        assert before.count(found[1]) == 1, before
        field.fill(before.replace(found[1], found[2]))
