"""What an embedded cluster keeps, as tests ask for it."""

from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.embedded.events import KeptEvent


def events_of(cluster: EmbeddedCluster, name: str, kind: str = "Pod") -> list[KeptEvent]:
    """Return the events of the objects of a kind that have this name, in any namespace."""
    return [one for one in cluster.events.all() if (one.about.name, one.about.kind) == (name, kind)]


def number_of(cluster: EmbeddedCluster, kind: str) -> int:
    """Return how many objects of a kind there are."""
    return len(list(cluster.store.all(kind)))
