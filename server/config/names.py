"""The names in a configuration: queues, partitions, users, groups, access lists and name patterns.

Functions that return a name, list or pattern raise ValueError for an invalid text. The message of the error is for the file's
author.
"""

import re
import warnings
from typing import Final

from server.model.quota import NOBODY, QUEUE_NAME, RECOVERY_QUEUE, WILDCARD, Acl

PATTERN_MAX: Final = 256
"""The largest number of characters of one regular expression in a filter."""

_PARTITION_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?")
_GROUP: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*")
_SPECIAL: Final = re.compile(r"[\^$*+?()\[{}|\\]")
_NESTED_REPETITION: Final = re.compile(r"[+*}]\)[+*{]")
_ACL_FIELDS: Final = 2


def queue_name(written: str) -> str:
    """Return a queue's own name, in lower case."""
    if not QUEUE_NAME.fullmatch(written):
        dots = (
            "; a dot separates levels, write the inner queue under `queues`"
            if "." in written
            else ""
        )
        raise ValueError(
            f"{written!r} is not a queue name: 1 to 64 of letters, digits and _ : # / @ -{dots}"
        )
    name = written.lower()
    if name == RECOVERY_QUEUE.rpartition(".")[2]:
        raise ValueError(
            f"the queue name {written!r} is reserved for applications recovered by force"
        )
    return name


def partition_name(written: str) -> str:
    """Return a partition's name. An empty name, and `default` in upper or lower case, mean the default partition."""
    if written.lower() in ("", "default"):
        return "default"
    if written.startswith("["):
        raise ValueError(
            f"{written!r}: a partition is named without its resource manager, as in `default`"
        )
    if not _PARTITION_NAME.fullmatch(written):
        raise ValueError(
            f"{written!r} is not a partition name: 1 to 64 of letters, digits and _ . -"
        )
    return written


def user_name(written: str) -> str:
    """Return a user's name, such as `anna` or `system:serviceaccount:team:runner`."""
    if not _USER.fullmatch(written):
        raise ValueError(f"{written!r} is not a user name")
    return written


def group_name(written: str) -> str:
    """Return a group's name, such as `dev` or `system:serviceaccounts:team`."""
    if not _GROUP.fullmatch(written):
        raise ValueError(f"{written!r} is not a group name")
    return written


def user_or_wildcard(written: str) -> str:
    """Return the name of a user in a limit, or `*`."""
    return written if written == WILDCARD else user_name(written)


def group_or_wildcard(written: str) -> str:
    """Return the name of a group in a limit, or `*`."""
    return written if written == WILDCARD else group_name(written)


def acl(written: str) -> Acl:
    """Return the access list of a text. The text is `users groups`: two fields separated by a space, each a list with commas.

    A text with a leading space has groups only. `*` stands for all users, and an empty text for no users.
    """
    fields = written.split()
    if written[:1].isspace() and fields:
        fields.insert(0, "")
    if len(fields) > _ACL_FIELDS:
        raise ValueError(
            f"{written!r} has {len(fields)} fields: write `users groups`, names separated by commas"
        )
    users, groups = [_names(one) for one in (*fields, "", "")[:_ACL_FIELDS]]
    if WILDCARD in (*users, *groups):
        if len(users) + len(groups) > 1:
            raise ValueError(f"{written!r}: `*` means everybody and allows no name beside it")
        return Acl(everyone=True)
    if not users and not groups:
        return NOBODY
    return Acl(
        users=frozenset(user_name(name) for name in users),
        groups=frozenset(group_name(name) for name in groups),
    )


def _names(written: str) -> list[str]:
    names = written.split(",") if written else []
    if "" in names:
        raise ValueError(f"{written!r} has an empty name between commas")
    return names


def is_pattern(written: str) -> bool:
    """Return whether a single filter entry is a regular expression and not a name.

    A `$` at the end alone does not make an entry a regular expression, because a name may end with `$`.
    """
    return bool(_SPECIAL.search(written)) and not _USER.fullmatch(written)


def pattern(written: str) -> str:
    """Return a regular expression of a filter, which is searched for anywhere in a name.

    A repetition inside a repetition is refused, because matching a name against such an expression may take for ever.
    """
    if len(written) > PATTERN_MAX:
        raise ValueError(
            f"the regular expression has {len(written)} characters, allowed are {PATTERN_MAX}"
        )
    if _NESTED_REPETITION.search(written):
        raise ValueError(f"{written!r} repeats a repetition, which can take for ever to match")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(written)
    except (re.error, OverflowError, RecursionError) as fault:
        raise ValueError(f"{written!r} is not a regular expression: {fault}") from fault
    return written
