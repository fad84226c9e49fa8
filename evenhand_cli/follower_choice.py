"""The rule that says whether a follower is close enough to its leader, so that commands and views may read from the follower."""

from typing import Final

from evenhand.v1 import inspect_pb2, replication_pb2

BEHIND_MAX: Final = 5_000
"""A follower is used for reads only if it is at most this many events and ticks behind its leader."""
SILENT_MS_MAX: Final = 3_000
"""A follower is used for reads only if the last message of its leader came at most this many milliseconds ago.

A leader sends a message every second.
"""


def is_follower(found: replication_pb2.GetReplicationResponse, term: str) -> bool:
    """Return whether a core follows the leader of a term closely, and has made the same decisions as the leader.

    BEHIND_MAX and SILENT_MS_MAX say what is close.
    """
    behind, silent_ms = found.leader_position - found.position, found.now_ms - found.heard_ms
    is_same = found.state == "follower" and found.term == term and not found.difference
    return is_same and _is_close(behind, found.heard_ms, silent_ms)


def is_close(picture: inspect_pb2.Picture) -> bool:
    """Return whether an answer is from a core that decides, or from a core that follows closely.

    BEHIND_MAX and SILENT_MS_MAX say what is close.
    """
    silent_ms = picture.taken_at_ms - picture.heard_ms
    return not picture.follows or _is_close(picture.behind, picture.heard_ms, silent_ms)


def _is_close(behind: int, heard_ms: int, silent_ms: int) -> bool:
    return bool(heard_ms) and silent_ms <= SILENT_MS_MAX and behind <= BEHIND_MAX
