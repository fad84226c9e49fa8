"""The quota in application tags, which carry the annotations of a namespace (docs/yunikorn/migrate.md)."""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from server.model.resources import BadQuantity, Limit, limit

QUOTA_TEXT_MAX = 4096
"""The largest number of characters of a tag with amounts. A longer tag is refused."""

_NUMBER = re.compile(r"[0-9]{1,19}")


class TagQuota(NamedTuple):
    """The quota that the tags request. The values (), None and 0 mean that the tags set no value."""

    guaranteed: Limit
    max: Limit | None
    max_applications: int

    def names(self) -> frozenset[str]:
        """Return the names of the queue properties that the tags set, in the form of `QueueSpec.tagged`."""
        values = {
            "guaranteed": bool(self.guaranteed),
            "max": self.max is not None,
            "maxapplications": bool(self.max_applications),
        }
        return frozenset(name for name, is_set in values.items() if is_set)


NO_QUOTA = TagQuota((), None, 0)


def quota(tags: Mapping[str, str]) -> TagQuota | str:
    """Return the quota in the tags `namespace.resourcequota`, `.resourceguaranteed` and `.resourcemaxapps`.

    If the quota is invalid, return the reason.
    """
    try:
        guaranteed = _amounts(tags, "namespace.resourceguaranteed")
        maximum = _amounts(tags, "namespace.resourcequota")
        return TagQuota(guaranteed or (), maximum, _count(tags, "namespace.resourcemaxapps"))
    except ValueError as bad:
        return str(bad)


def _amounts(tags: Mapping[str, str], tag: str) -> Limit | None:
    """Return the amounts in a tag: JSON in YuniKorn's form, {"resources": {"vcore": {"value": 1000}}}, or plain {"vcore": 1000}.

    A number may be in quotes, as 64-bit numbers in JSON often are. Return None if the tag is missing. Raise ValueError if the
    tag is invalid.
    """
    text = tags.get(tag, "")
    if not text:
        return None
    if len(text) > QUOTA_TEXT_MAX:
        raise ValueError(f"tag {tag} is longer than {QUOTA_TEXT_MAX} characters")
    try:
        read = json.loads(text)
        amounts = read.get("resources", read)
        return limit({str(name): _quantity(tag, amount) for name, amount in amounts.items()})
    except (json.JSONDecodeError, AttributeError, RecursionError, BadQuantity) as bad:
        raise ValueError(f"tag {tag} is not a JSON map of whole quantities: {bad}") from bad


def _quantity(tag: str, amount: object) -> int:
    if isinstance(amount, dict):
        amount = amount.get("value", 0)
    if isinstance(amount, str) and _NUMBER.fullmatch(amount):
        return int(amount)
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise ValueError(f"tag {tag} is not a JSON map of whole quantities: {amount!r}")  # noqa: TRY004
    return amount


def _count(tags: Mapping[str, str], tag: str) -> int:
    text = tags.get(tag, "")
    if not text:
        return 0
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"tag {tag} is not a whole number: {text[:64]!r}")
    return int(text)
