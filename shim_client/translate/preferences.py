"""The preferences of a pod among nodes, as data for the core (design 6.15)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from shim_client.messages import GroupPreference, NodePreferences, PreferredTerm
from shim_client.translate.neighbours import Demands


def node_preferences(
    terms: Iterable[PreferredTerm], demands: Demands | None
) -> NodePreferences | None:
    """Return the preferences that the core can judge: terms about nodes, and preferences for or against pods of the same group.

    The pods that have a preference in common, and are selected by it, are a group (`Preference.group`). Return None if the pod has no such preferences.
    """
    groups = (
        GroupPreference(one.group, one.topology_key, one.weight)
        for one in (demands.preferred if demands is not None else ())
        if one.group
    )
    return shared(NodePreferences(tuple(terms), tuple(groups)))


def shared(found: NodePreferences) -> NodePreferences | None:
    """Return the common object for equal preferences, or None if there are no preferences."""
    return _shared(found) if found.terms or found.groups else None


@lru_cache(maxsize=8192)
def _shared(found: NodePreferences) -> NodePreferences:
    return found
