"""Core and shim on a real API server under faults, judged by the API server's audit log; EVENHAND_SEED sets the seed."""

from pathlib import Path

import pytest

from scripts.real import provision
from tests.effort import ONLY_WHERE_ALL_ARE_TRIED
from tests.faults.seeds import RUN_MINUTES, SEED, SOAK_SEEDS, run
from tests.real.needs import absent

MODULE = "tests.faults.kubernetes"
SHORT = ("shim-killed", "core-killed", "shim-stopped", "net-half-closed", "disk-full")

pytestmark = pytest.mark.usefixtures("namespaces")


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    missing = provision.missing()
    if missing:
        absent(f"not built: {', '.join(missing)} (`make real` builds them)")


@ONLY_WHERE_ALL_ARE_TRIED
def test_some_faults_while_nodes_and_quotas_change(tmp_path: Path) -> None:
    run(MODULE, SEED, 0.1, tmp_path, *SHORT)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_faults_for_an_hour(tmp_path: Path, seed: int) -> None:
    run(MODULE, seed, RUN_MINUTES, tmp_path)
