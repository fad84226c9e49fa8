"""The form of a commit's subject: `area: imperative summary`, at most 72 characters.

Run as `python -m scripts.commit_subject FILE` by the hook in .pre-commit-config.yaml; FILE holds the message.
"""

import re
import sys
from pathlib import Path
from typing import Final

MOST: Final = 72
FORM: Final = re.compile(r"[a-z0-9][\w ,./-]*: \S.*[^.\s]")
MADE_BY_GIT: Final = ("Merge ", "Revert ", "fixup! ", "squash! ")


def problem(subject: str) -> str | None:
    """Return what is wrong with a subject, None for a good one."""
    if subject.startswith(MADE_BY_GIT):
        return None
    if len(subject) > MOST:
        return f"it has {len(subject)} characters, at most {MOST} are allowed"
    if not FORM.fullmatch(subject):
        return "it is not of the form `area: imperative summary`, without a period at the end"
    return None


def main(path: str) -> int:
    """Print the problem of the message in a file; return 1 if there is one, 0 otherwise."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    subject = lines[0] if lines else ""
    found = problem(subject)
    if found is None:
        return 0
    sys.stderr.write(f"The subject of the commit is refused: {found}.\n  {subject}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
