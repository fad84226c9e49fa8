"""The tags of pods that ended.

These tags are kept for a while, because they hold the names of the pods, which clients may still read.
"""

from typing import Final

from server.model.asks import NO_TAGS, Tags

ENDED_KEPT_MAX: Final = 10_000
"""The tags of this many pods are always kept: the pods that ended last.

The tags of pods that ended earlier may be kept, too. In total, the tags of at most twice this number of pods are kept.
"""
TAGS_KEPT_BYTES_MAX: Final = 4_096
"""The largest number of bytes of an ended pod's tags. Longer tags are not kept."""


class EndedTags:
    """The tags of the pods of one partition that ended last, by key.

    ``recent`` has the tags of the latest pods, and ``earlier`` has older tags.
    """

    __slots__ = ("earlier", "recent")

    def __init__(self) -> None:
        self.recent: dict[str, Tags] = {}
        self.earlier: dict[str, Tags] = {}

    def keep(self, key: str, tags: Tags) -> None:
        """Keep the tags of a pod that ended or was refused, because clients may still read the pod's name. Very long tags are not kept."""
        if tags and len(tags[0]) > TAGS_KEPT_BYTES_MAX:
            return
        self.recent[key] = tags
        if len(self.recent) >= ENDED_KEPT_MAX:
            self.recent, self.earlier = {}, self.recent

    def get(self, key: str) -> Tags:
        """Return the tags of a pod that ended recently. Return no tags if the pod is unknown."""
        return self.recent.get(key) or self.earlier.get(key) or NO_TAGS
