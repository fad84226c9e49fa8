"""The spelling of settings as in `queues.yaml`: quantities, durations, shares, access lists and limits."""

from typing import Final

from server.model.quota import Acl, UserLimit
from server.model.resources import Limit

VCORE: Final = "vcore"
MILLI: Final = 1_000

_BINARY: Final = tuple(
    (f"{letter}i", 1_024**power) for power, letter in reversed(list(enumerate("KMGTPE", start=1)))
)


def quantity_text(kind: str, amount: int) -> str:
    """Return a quantity in the usual form of Kubernetes: `1500m` and `2` for vcore, `10Gi` for memory."""
    if kind == VCORE:
        return str(amount // MILLI) if amount % MILLI == 0 else f"{amount}m"
    for unit, factor in _BINARY if _in_bytes(kind) else ():
        if amount and amount % factor == 0:
            return f"{amount // factor}{unit}"
    return str(amount)


def _in_bytes(kind: str) -> bool:
    return kind in ("memory", "ephemeral-storage") or kind.startswith("hugepages-")


def limit_text(limit: Limit | None) -> str:
    """Return a limit as `memory=10Gi vcore=2`. Return "" if there is no limit."""
    return " ".join(f"{kind}={quantity_text(kind, amount)}" for kind, amount in limit or ())


def duration_text(milliseconds: int) -> str:
    """Return a duration as `1h30m`, `5m`, `2s` or `1500ms`. Return `0s` if the duration is 0."""
    if milliseconds % 1_000:
        return f"{milliseconds}ms"
    hours, rest = divmod(milliseconds // 1_000, 3_600)
    minutes, seconds = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def share_text(permyriad: int) -> str:
    """Return a number of 1/10000 as a percentage, such as `10%` or `2.5%`."""
    whole, part = divmod(permyriad, 100)
    decimals = f".{part:02d}".rstrip("0") if part else ""
    return f"{whole}{decimals}%"


def value_text(field: str, value: object) -> str:
    """Return the value of a field of `QueueProperties` or `PreemptionSettings` as text. The name of the field determines the unit."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value)
    if isinstance(value, int) and field.endswith("_ms"):
        return duration_text(value)
    if isinstance(value, int) and field.endswith("_permyriad"):
        return share_text(value)
    return "" if value is None else str(value)


def acl_text(acl: Acl) -> str:
    """Return an access list as `users groups`, with commas between names.

    Return `*` if all users are allowed, and "" if no user is allowed.
    """
    if acl.everyone:
        return "*"
    return f"{','.join(sorted(acl.users))} {','.join(sorted(acl.groups))}".rstrip()


def user_limit_text(entry: UserLimit) -> str:
    """Return an entry of `limits` as text: the users and groups, and then the limits that apply to each of them."""
    who = [*(f"user {name}" for name in entry.users), *(f"group {name}" for name in entry.groups)]
    most = f"maxapplications={entry.max_applications}" if entry.max_applications else ""
    return f"{', '.join(who)}: {' '.join(part for part in (limit_text(entry.max_resources), most) if part)}"
