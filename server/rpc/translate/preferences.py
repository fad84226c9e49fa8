"""The translation of an ask's node preferences from the wire to values (design 6.15)."""

from server.model.asks import NO_PREFERENCES, GroupPreference, Preferences, PreferredTerm
from server.rpc.limits import PREFERENCE_WEIGHT_MAX
from server.rpc.translate.constraints import term
from server.rpc.translate.fields import RefusedError, listed, name
from si.v1 import si_pb2


def preferences(message: si_pb2.NodePreferences) -> Preferences:
    """Return the preferences of an ask. Return the object `NO_PREFERENCES` if the message sets no preferences."""
    if not message.ByteSize():
        return NO_PREFERENCES
    listed("preferences.terms", message.terms)
    listed("preferences.groups", message.groups)
    found = Preferences(
        terms=tuple(
            PreferredTerm(_weight(f"{path}.weight", one.weight), term(f"{path}.term", one.term))
            for i, one in enumerate(message.terms)
            for path in [f"preferences.terms[{i}]"]
        ),
        groups=tuple(
            _group(f"preferences.groups[{i}]", one) for i, one in enumerate(message.groups)
        ),
    )
    return NO_PREFERENCES if found == NO_PREFERENCES else found


def _group(path: str, message: si_pb2.GroupPreference) -> GroupPreference:
    return GroupPreference(
        group=name(f"{path}.group", message.group),
        topology_key=name(f"{path}.topologyKey", message.topologyKey),
        weight=_weight(f"{path}.weight", message.weight),
    )


def _weight(path: str, weight: int) -> int:
    if abs(weight) > PREFERENCE_WEIGHT_MAX:
        raise RefusedError(
            f"{path}: {weight} is not between -{PREFERENCE_WEIGHT_MAX} and {PREFERENCE_WEIGHT_MAX}"
        )
    return weight
