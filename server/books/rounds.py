"""What the round loop keeps between ticks: where it stopped, and what it need not look at again (design 6.2).

It only saves work. Forgetting all of it changes no decision.
"""


class Round:
    """One partition's round.

    ``due_ms`` is the next instant at which time alone may let somebody act. ``seen`` are the counters of the books
    (relief, nodes) at which the last round began; ``open`` says that its budget cut it off, ``masked`` whom it has
    refused so far, by policy and key. ``hopeless`` has the numbers of classes that no node could hold, true
    as long as ``hopeless_seen`` (nodes that opened, pledges that ended); ``barren`` the numbers of groups
    in which no ask may reserve, true as long as no ask joins them.
    """

    __slots__ = (
        "barren",
        "due_ms",
        "hopeless",
        "hopeless_seen",
        "masked",
        "open",
        "pledges_ended",
        "seen",
    )

    def __init__(self) -> None:
        self.due_ms: int | None = None
        self.seen = (-1, -1)
        self.open = False
        self.masked: set[tuple[str, str]] = set()
        self.hopeless: set[int] = set()
        self.hopeless_seen = (0, 0)
        self.barren: set[int] = set()
        self.pledges_ended = 0
