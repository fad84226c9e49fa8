"""Checkpoints: a core that is made from one decides as the core that it was made of, and forged ones are refused."""

import enum
import importlib
import io
import pickle
import zlib

import pytest

from evenhand_cli.story.form import Example
from evenhand_cli.story.play import Player
from server.core.core import Core
from server.model.events import NodeAdded
from server.replication import checkpoint
from server.replication.checkpoint import Header, layout
from server.state.pickled import BadCheckpointError
from tests.effort import drawn
from tests.stories.story import stories

STORIES = drawn(stories())
MANY = 2_000
"""Objects that refer to each other in a chain: more than Python allows calls within each other."""


def header(**other: object) -> Header:
    """Return a header with the layout of this program."""
    facts = {
        "version": "1",
        "layout": layout(),
        "position": 7,
        "decided": 3,
        "at_ms": 5,
    }
    return Header(**{**facts, **other})  # type: ignore[arg-type]


def packed(core: Core, **other: object) -> bytes:
    """Return a checkpoint of a core."""
    return b"".join(checkpoint.written(core, header(**other)))


def copied(core: Core) -> Core:
    """Return a core made from a checkpoint of another."""
    found, made = checkpoint.read(io.BytesIO(packed(core)))
    assert found == header()
    return made


@pytest.mark.parametrize(
    "story",
    [story for _, story in STORIES],
    ids=[f"{file}: {story.title}" for file, story in STORIES],
)
def test_every_story_goes_on_with_a_core_made_from_a_checkpoint_at_each_step(
    story: Example,
) -> None:
    player = Player.of(story)
    for turn in player.turns():
        assert [one for one in turn.checks if not one.holds] == [], turn.moment.step
        before = player.core
        player.core = copied(before)
        assert player.core.next_due() == before.next_due()
        assert player.core.digest() == before.digest()
        assert player.core.state.timers == before.state.timers


def test_members_of_enumerations_are_written_by_value_whichever_way_python_prefers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.11.0 to 3.11.3 pickles a member by `getattr`, which a checkpoint may not name."""

    def by_name(member: enum.Enum, _protocol: int) -> tuple[object, ...]:
        return getattr, (type(member), member.name)

    monkeypatch.setattr(enum.Enum, "__reduce_ex__", by_name)
    player = Player.of(STORIES[0][1])
    for _ in player.turns():
        pass
    assert copied(player.core).digest() == player.core.digest()


def test_the_depth_does_not_grow_with_the_cluster() -> None:
    core = Core()
    for number in range(MANY):
        core.handle(NodeAdded("rm", f"n{number}", (("vcore", 1),)), 1)
    assert copied(core).digest() == core.digest()


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (lambda data: data[: len(data) // 2], "incomplete|damaged"),
        (lambda _: b"", "incomplete"),
        (lambda _: b"no checkpoint at all", "damaged"),
        (lambda data: data[:20] + bytes([data[20] ^ 255]) + data[21:], "."),
    ],
)
def test_damaged_bytes_are_refused(damaged: object, why: str) -> None:
    with pytest.raises(BadCheckpointError, match=why):
        checkpoint.read(io.BytesIO(damaged(packed(Core()))))  # type: ignore[operator]


def test_other_fields_and_other_formats_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        BadCheckpointError, match="of version 9, whose state or input has another layout"
    ):
        checkpoint.read(io.BytesIO(packed(Core(), version="9", layout="another")))
    data = packed(Core())
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    with pytest.raises(BadCheckpointError, match="its format is 1, this version reads 2"):
        checkpoint.read(io.BytesIO(data))


class _Evil:
    def __init__(self, *call: object) -> None:
        self._call = call

    def __reduce__(self) -> tuple[object, ...]:
        return self._call[0], tuple(self._call[1:])


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ((eval, "1"), "builtins.eval"),
        ((getattr, "a", "b"), "builtins.getattr"),
        ((__import__, "os"), "builtins.__import__"),
        ((io.open, "/nowhere"), "open"),
        ((importlib.import_module, "os"), "importlib.import_module"),
        ((Core.handle, None, None, 0), "Core.handle"),
    ],
    ids=["eval", "getattr", "import", "open", "import_module", "method"],
)
def test_a_forged_checkpoint_runs_nothing(call: tuple[object, ...], named: str) -> None:
    frames = [
        pickle.dumps((checkpoint.FORMAT, *header())),
        pickle.dumps(_Evil(*call)),
    ]
    data = zlib.compress(b"".join(len(one).to_bytes(4, "big") + one for one in frames))
    with pytest.raises(BadCheckpointError, match=f"{named}, which is no part of a core"):
        checkpoint.read(io.BytesIO(data))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("server.core.events.moving", "io.FileIO"),
        ("server.state.copying", "FunctionType"),
        ("server.core.preemption.apply_plan", "attrgetter"),
        ("server.core.core", "Core.handle"),
    ],
)
def test_what_a_module_of_the_core_imports_is_no_part_of_a_core(module: str, name: str) -> None:
    """Such a class could open a file, make a function of any code, or read any attribute."""
    named = b"".join(b"\x8c" + bytes([len(one)]) + one.encode() for one in (module, name))
    frames = [
        pickle.dumps((checkpoint.FORMAT, *header())),
        b"\x80\x04" + named + b"\x93.",
    ]
    data = zlib.compress(b"".join(len(one).to_bytes(4, "big") + one for one in frames))
    with pytest.raises(BadCheckpointError, match=f"{name}, which is no part of a core"):
        checkpoint.read(io.BytesIO(data))


@pytest.mark.parametrize("values", [(), (checkpoint.FORMAT,), (checkpoint.FORMAT, *range(9))])
def test_a_header_with_other_values_is_refused(values: tuple[object, ...]) -> None:
    frame = pickle.dumps(values)
    data = zlib.compress(len(frame).to_bytes(4, "big") + frame)
    with pytest.raises(BadCheckpointError, match="it has no header"):
        checkpoint.read(io.BytesIO(data))


def test_a_checkpoint_of_something_else_is_refused() -> None:
    frames = [pickle.dumps((checkpoint.FORMAT, *header())), pickle.dumps({"a": 1})]
    data = zlib.compress(b"".join(len(one).to_bytes(4, "big") + one for one in frames))
    with pytest.raises(BadCheckpointError, match="holds no core"):
        checkpoint.read(io.BytesIO(data))
