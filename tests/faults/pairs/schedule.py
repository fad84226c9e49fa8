"""The kills and cut networks of a run in their order, determined only by a seed."""

import random
from dataclasses import dataclass
from typing import Final

LEADING_CORE: Final = "leading core"
FOLLOWER: Final = "follower"
LEADING_SHIM: Final = "leading shim"
WARM_SHIM: Final = "warm shim"
ENGINE: Final = "engine"
ROLES: Final = (LEADING_CORE, FOLLOWER, LEADING_SHIM, WARM_SHIM)
"""The roles of all runs. In a run with NATS there is also `ENGINE`, its server."""
KILLED: Final = "killed"
ENDED: Final = "ended"
STOPPED: Final = "stopped"
STARTING: Final = "ended while it started"
"""The end of a process by SIGTERM that did not handle the signal yet."""
WAYS: Final = (*[KILLED] * 7, ENDED, ENDED, STOPPED)
"""How a process is hurt, each as often as it is drawn: SIGKILL, SIGTERM, or SIGSTOP and later SIGCONT."""
RASH: Final = 0.25
"""The probability that a kill does not wait until everything has recovered from the last one."""
LINKS: Final = (
    "shim-1 core-1",
    "shim-1 core-2",
    "shim-2 core-1",
    "shim-2 core-2",
    "shim-1 api",
    "shim-2 api",
    "core-1 core-2",
)
"""The networks of a run, by the names of the client and of the server."""
NATS_LINKS: Final = (*LINKS[:-1], "core-1 engine", "core-2 engine")
"""The networks of a run with NATS, through which the cores exchange their input."""
DIRECTIONS: Final = ("there", "back", "both")
LOST: Final = "lost"
HELD: Final = "held"


@dataclass(frozen=True)
class Kill:
    """A kill of the process with a role, after a pause; `away_ms` later a new process starts, or the stopped one continues.

    With `is_rash` the kill does not wait until everything has recovered from the last one.
    """

    role: str
    how: str
    pause_ms: int
    away_ms: int
    is_rash: bool


@dataclass(frozen=True)
class Cut:
    """A network between two processes that is parted for a time, in one direction or in both."""

    link: str
    direction: str
    how: str
    pause_ms: int
    lasts_ms: int


def schedule(seed: int, kills: int, cuts: int, *, nats: bool = False) -> list[Kill | Cut]:
    """Return kills and cuts in a random order, in shuffled rounds of all roles and of all links with their directions.

    With `nats` the roles and links are those of a run with NATS.
    """
    roles, links = ((*ROLES, ENGINE), NATS_LINKS) if nats else (ROLES, LINKS)
    dice = random.Random(f"{seed}/pairs")
    dealt: list[Kill | Cut] = []
    while len(dealt) < kills:
        dealt += [_kill(role, dice) for role in dice.sample(roles, len(roles))]
    del dealt[kills:]
    every = [(link, direction) for link in links for direction in DIRECTIONS]
    parted: list[Kill | Cut] = []
    while len(parted) < cuts:
        parted += [_cut(*each, dice) for each in dice.sample(every, len(every))]
    dealt += parted[:cuts]
    dice.shuffle(dealt)
    return dealt


def _kill(role: str, dice: random.Random) -> Kill:
    how = dice.choice(WAYS)
    away_ms = dice.randint(500, 6_000) if how == STOPPED else dice.randint(0, 1_000)
    return Kill(role, how, dice.randint(0, 1_000), away_ms, dice.random() < RASH)


def _cut(link: str, direction: str, dice: random.Random) -> Cut:
    """Return a cut. What a shim sends to the API server is swallowed and never comes late.

    The API server carries out a late request of a shim that lost the lease, which design 7.2 allows.
    """
    how = LOST if link.endswith("api") else dice.choice((LOST, HELD))
    return Cut(link, direction, how, dice.randint(0, 500), dice.randint(300, 4_500))
