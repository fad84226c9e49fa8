"""The alert rules: the plain file with another place of the run-books, and the PrometheusRule that is made from it."""

from pathlib import Path
from typing import Any, Final

import yaml

ALERTS: Final = Path(__file__).parents[2] / "deploy" / "monitoring" / "alerts.yaml"
BASE: Final = "docs/runbooks/"
"""The beginning of each ``runbook_url`` in the plain file."""


def plain(base: str = BASE) -> str:
    """Return the text of the plain file with the pages at another place. ``base`` ends with a slash, or gets one."""
    return ALERTS.read_text("utf-8").replace(f"runbook_url: {BASE}", f"runbook_url: {_ended(base)}")


def resource(base: str = BASE) -> str:
    """Return the rules as an object of the Prometheus operator."""
    made: dict[str, Any] = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "evenhand", "namespace": "evenhand"},
        "spec": yaml.safe_load(plain(base)),
    }
    head = "# Made from alerts.yaml by `python -m scripts.monitoring`.\n"
    return head + yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=120)


def _ended(base: str) -> str:
    return base if base.endswith("/") else f"{base}/"
