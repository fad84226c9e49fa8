"""Write the dashboards, and the alert rules in both forms; `--runbooks URL` sets the place of the pages in the rules.

Without options the files of deploy/monitoring are renewed. Another place of the pages needs another folder.
"""

from pathlib import Path
from typing import Annotated

import typer

from scripts.monitoring import dashboards, rules


def main(
    runbooks: Annotated[
        str, typer.Option(help="Where the pages of docs/runbooks are served.")
    ] = rules.BASE,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = rules.ALERTS.parent,
) -> None:
    """Write all files of deploy/monitoring."""
    if runbooks != rules.BASE and out.resolve() == rules.ALERTS.parent:
        raise typer.BadParameter("name another folder with --out, which may be a temporary one")
    boards = out / "dashboards"
    boards.mkdir(parents=True, exist_ok=True)
    for name, text in dashboards.files().items():
        (boards / name).write_text(text, "utf-8")
    (out / "alerts.yaml").write_text(rules.plain(runbooks), "utf-8")
    (out / "prometheusrule.yaml").write_text(rules.resource(runbooks), "utf-8")


if __name__ == "__main__":
    typer.run(main)
