"""The script that provides a Docker engine: whose process it ends, and its message when it may not install packages."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.docker import engine, provision
from scripts.docker.engine import Engine, EngineError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide an empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_an_engine_that_was_named_and_is_silent_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(EngineError, match=r"DOCKER_HOST is tcp://127\.0\.0\.1:1"):
        engine.find()


def test_a_process_that_is_no_engine_is_not_ended(cache: Path) -> None:
    file = cache / "evenhand" / "docker" / "dockerd.pid"
    file.parent.mkdir(parents=True)
    # A pid that was given to another process since: to this one.
    file.write_text(str(os.getpid()))
    assert engine.stop() is False
    assert not file.exists()


def test_without_an_engine_only_root_installs_one(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.is_dir()
    monkeypatch.setattr(engine, "find", lambda: None)
    monkeypatch.setattr(engine, "has", lambda name: name == "apt-get")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match=r"only root may install them(.|\n)*docker\.io"):
        provision.main([])


def test_a_private_engine_is_not_started_by_others_than_root(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "lacking", list)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EngineError, match="by root"):
        engine.start()
    assert not (cache / "evenhand").exists()


def test_an_engine_that_answers_is_used_as_it_is(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "find", lambda: Engine("tcp://engine:2375", "99"))
    with engine.borrowed() as found:
        assert found.environment() == {"DOCKER_HOST": "tcp://engine:2375"}
    assert not (cache / "evenhand").exists()


def test_two_users_have_the_private_engine_at_the_same_time_and_the_last_one_stops_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.is_dir()
    running: list[Engine] = []
    stopped: list[int] = []

    def start() -> Engine:
        running.append(Engine("unix:///here", "99", private=True))
        return running[-1]

    def second() -> Engine:
        with engine.borrowed() as found:
            return found

    silent: list[None] = []

    def find() -> Engine | None:
        return silent.pop() if silent else (running[-1] if running else None)

    monkeypatch.setattr(engine, "find", find)
    monkeypatch.setattr(engine, "start", start)
    monkeypatch.setattr(engine, "stop", lambda: stopped.append(len(running)))
    with ThreadPoolExecutor(1) as other, engine.borrowed() as found:
        assert other.submit(second).result(timeout=60) is found
        assert not stopped
        silent.extend([None] * 3)
        assert other.submit(second).result(timeout=60) is found, "it answers the fourth question"
        assert not stopped
    assert stopped == [1]
