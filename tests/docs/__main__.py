"""The update of the pages with the current output of their examples: `TZ=UTC python -m tests.docs`."""

import os
import tempfile
from pathlib import Path

from tests.bench import page as performance
from tests.docs.pages import DOCS, examples, printed, shows


def renew(page: Path) -> None:
    """Run the examples of a page and replace the outputs that differ, from the last output to the first."""
    text = page.read_text("utf-8")
    found = [each for example in examples(page) for each in printed(example, Path.cwd())]
    for block, said in (pair for pair in reversed(found) if not shows(*pair)):
        text = text[: block.start] + said + text[block.end :]
    page.write_text(text, "utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for each in sorted(DOCS.glob("**/*.md")):
            renew(each)
    performance.renew()
