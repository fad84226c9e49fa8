"""The process of a core loads no module of the database, not even when it is asked about the past."""

from pathlib import Path

import pytest

from tests.cli.processes import address_of, running
from tests.cli.run import evenhand


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists libraries")
def test_a_core_that_answers_about_the_past_has_not_loaded_the_database(tmp_path: Path) -> None:
    arguments = ["serve", "--listen", "127.0.0.1:0", "--history", str(tmp_path / "history.sqlite")]
    with running(arguments, tmp_path / "log") as process:
        core = address_of(process, tmp_path / "log")
        assert evenhand("history", "waits", "--core", core).code == 0
        assert evenhand("history", "config", "--core", core).code == 0
        loaded = Path(f"/proc/{process.pid}/maps").read_text()
    assert "grpc" in loaded
    assert "sqlite3" not in loaded
    assert "sqlalchemy" not in loaded
