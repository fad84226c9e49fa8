"""The dispatch of decisions: each decision is encoded and put into the outbox of its manager's stream."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, cast

from google.protobuf.message import Message

from server.model.decisions import AskStateChanged, Decision, Decisions, Placed, Released
from server.rpc.outbox import StateKey
from server.rpc.sessions import Kind, Sessions
from server.rpc.translate.answers import (
    ALLOCATION_ANSWERS,
    APPLICATION_ANSWERS,
    NODE_ANSWERS,
    ask_state,
)
from server.rpc.translate.answers_fast import PlacementEncoder, ReleaseEncoder

_Answer = Callable[[Any], Message]
_MANAGER: Final = itemgetter(0)
"""The key by which placements and releases are grouped: their manager."""

_ANSWERS: Final[Mapping[type, tuple[Kind, _Answer]]] = {
    **{kind: (Kind.ALLOCATION, answer) for kind, answer in ALLOCATION_ANSWERS.items()},
    **{kind: (Kind.APPLICATION, answer) for kind, answer in APPLICATION_ANSWERS.items()},
    **{kind: (Kind.NODE, answer) for kind, answer in NODE_ANSWERS.items()},
}


class _Letters:
    """The encoded decisions of one batch that go to one manager on one stream."""

    __slots__ = ("pieces", "placed", "states")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.states: dict[StateKey, bytes] = {}
        self.placed: list[Placed] = []


_Place = tuple[str, Kind]
_Post = dict[_Place, _Letters]


class Dispatch:
    """The encoder that fills outboxes with decisions. A decision that has no stream, such as a note, reaches observers only."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._placements = PlacementEncoder()

    def send(self, decisions: Decisions) -> None:
        """Put every decision into its outbox, in order.

        Only the states of asks are stored separately from the other decisions (see `Outbox`).

        A decision is dropped if its manager has no outbox or if that outbox has spilled, that is, has dropped its content because
        it was too full.
        """
        post: _Post = {}
        releases = ReleaseEncoder()
        for kind, begin, end in decisions.runs:
            run = decisions.all[begin:end]
            if kind is Placed:
                self._write_placed(post, cast("Sequence[Placed]", run))
            elif kind is Released:
                _write_released(post, cast("Sequence[Released]", run), releases)
            else:
                for decision in run:
                    _write(post, decision)
        for place, letter in post.items():
            self._post(place, letter)

    def _write_placed(self, post: _Post, run: Sequence[Placed]) -> None:
        for rm_id, placements in groupby(run, _MANAGER):
            letter, placed = _letter(post, rm_id, Kind.ALLOCATION), list(placements)
            letter.pieces += self._placements.encode(placed)
            letter.placed += placed

    def _post(self, place: _Place, letter: _Letters) -> None:
        kept = self._sessions.kept.get(place)
        if kept is not None and letter.pieces:
            kept.add(letter.pieces)
        outbox = self._sessions.outbox(*place)
        if outbox is None or outbox.spilled:
            return
        if outbox.has_states:
            outbox.drop_states([(one.application_id, one.key) for one in letter.placed])
        if letter.pieces:
            outbox.extend(letter.pieces)
        if letter.states:
            outbox.put_states(letter.states)


def _letter(post: _Post, rm_id: str, kind: Kind) -> _Letters:
    place = (rm_id, kind)
    return post.get(place) or post.setdefault(place, _Letters())


def _write_released(post: _Post, run: Sequence[Released], encoder: ReleaseEncoder) -> None:
    for rm_id, releases in groupby(run, _MANAGER):
        _letter(post, rm_id, Kind.ALLOCATION).pieces += encoder.encode(releases)


def _write(post: _Post, decision: Decision) -> None:
    """Encode a decision other than a placement or release. Ignore a decision that has no stream."""
    found = _ANSWERS.get(type(decision))
    if found is None:
        return
    kind, answer = found
    letter = _letter(post, decision.rm_id, kind)
    if isinstance(decision, AskStateChanged):
        state = (decision.application_id, decision.key)
        letter.states[state] = ask_state(decision).SerializeToString()
    else:
        letter.pieces.append(answer(decision).SerializeToString())
