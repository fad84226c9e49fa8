"""All decisions and reports of the core in some worlds, as one text: `python -m tests.simulation.trace`.

Under different hash seeds the text must be equal, byte for byte (design 6.13).
"""

import sys
from collections.abc import Iterator

from evenhand_cli.story.play import run
from server.core.core import Core
from server.core.queries import inspect
from tests.simulation.worlds import make_world, preempting, sharing


def trace(seeds: range) -> Iterator[str]:
    """Return one line for each moment with the core's answer or decisions, and the final state at the end of each world."""
    for seed in seeds:
        world = make_world(seed)
        for configuration in (
            world.configuration,
            preempting(world.configuration),
            sharing(world.configuration, demand_cap=seed % 2 == 0),
        ):
            core = Core(configuration)
            for now, event in world.moments:
                decisions = run(core, now) if event is None else core.handle(event, now)
                yield f"{seed} {now} {decisions!r}"
            yield from _standing(core)


def _standing(core: Core) -> Iterator[str]:
    yield core.digest()
    for partition in inspect.partitions(core):
        yield repr(partition)
        yield repr(inspect.queue_tree(core, partition.name))
        yield repr(inspect.nodes(core, partition.name))
        yield repr(inspect.applications(core, partition.name))
        yield repr(inspect.allocations(core, partition.name, asks=True))


if __name__ == "__main__":
    first, last = (int(word) for word in sys.argv[1:])
    for line in trace(range(first, last)):
        sys.stdout.write(f"{line}\n")
