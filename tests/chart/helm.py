"""The program helm for tests: `make real` builds it, and its files are in a folder of the test."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from scripts.real import provision
from tests.real.needs import absent

CHART = Path(__file__).parents[2] / "deploy" / "chart"
SECONDS_MAX = 120.0

Object = dict[str, Any]


def helm(*words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run helm to its end, without a configuration of the user. Skips the test when helm is not built."""
    program = provision.program("helm")
    if program is None:
        absent("helm is not built (`make real` builds it)")
    own = ("HELM_", "KUBECONFIG")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    nowhere = {f"HELM_{name}_HOME": "/nonexistent/helm" for name in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [str(program), *words],
        env=inherited | nowhere,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )


def template(
    values: Mapping[str, Any], *words: str, chart: Path = CHART, namespace: str = "evenhand"
) -> subprocess.CompletedProcess[str]:
    """Run `helm template` with values by their paths, such as `core.replicas`."""
    command = ["template", "evenhand", str(chart), f"--namespace={namespace}", "--values=-", *words]
    return helm(*command, given=json.dumps(nested(values)))


def rendered(
    values: Mapping[str, Any], *words: str, chart: Path = CHART, namespace: str = "evenhand"
) -> list[Object]:
    """Return the objects that the chart renders with these values."""
    said = template(values, *words, chart=chart, namespace=namespace)
    assert said.returncode == 0, said.stderr
    return [item for item in yaml.safe_load_all(said.stdout) if item]


def nested(values: Mapping[str, Any]) -> Object:
    """Return values that are given by their paths as one tree."""
    tree: Object = {}
    for path, value in values.items():
        *above, last = path.split(".")
        node = tree
        for name in above:
            node = node.setdefault(name, {})
        node[last] = value
    return tree
