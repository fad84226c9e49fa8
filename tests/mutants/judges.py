"""The judges of seeded defects: parts of the test suite as small examples, each of which passes without a defect.

A part is imported only when it is needed, because reading all stories takes longer than the search for most
defects.
"""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import pytest

from tests.mutants.defects import Defect, Judge

SEEDS: Final = 400
"""Number of random examples, at least one of which must show the defect."""
PODS_MOST: Final = 7


class Example(NamedTuple):
    """An example; `run` raises an AssertionError when the core is wrong."""

    name: str
    run: Callable[[], object]


def examples(defect: Defect) -> Iterator[Example]:
    """Yield the examples of the defect's judge, in order."""
    return _JUDGES[defect.judge](defect)


def example(defect: Defect, name: str) -> Example:
    """Return the example of this name."""
    return next(one for one in examples(defect) if one.name == name)


def _seeds(run: Callable[[int], object], defect: Defect, what: str = "seed") -> Iterator[Example]:
    for seed in range(defect.first, defect.first + SEEDS):
        yield Example(f"{what} {seed}", partial(run, seed))


def _worlds(defect: Defect) -> Iterator[Example]:
    from tests.simulation.duel import duel  # noqa: PLC0415
    from tests.simulation.worlds import make_world  # noqa: PLC0415

    def run(seed: int) -> None:
        found = duel(make_world(seed, by_weight=defect.judge is Judge.WORLDS_BY_WEIGHT))
        assert found is None, f"oracle {found.oracle}, core {found.core}"

    return _seeds(run, defect)


def _floods(defect: Defect) -> Iterator[Example]:
    from server.scheduling import batch_fast  # noqa: PLC0415
    from tests.simulation.duel import duel  # noqa: PLC0415
    from tests.simulation.floods import flooded  # noqa: PLC0415

    def run(seed: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch_fast, "LEAST", 1)
            found = duel(flooded(seed))
        assert found is None, f"oracle {found.oracle}, core {found.core}"

    return _seeds(run, defect)


def _ebbs(defect: Defect) -> Iterator[Example]:
    from tests.simulation.test_ends import check  # noqa: PLC0415

    return _seeds(check, defect)


def _worlds_with_classes(defect: Defect) -> Iterator[Example]:
    from tests.simulation.classes import classified  # noqa: PLC0415
    from tests.simulation.duel import duel  # noqa: PLC0415

    def run(seed: int) -> None:
        found = duel(classified(seed))
        assert found is None, f"oracle {found.oracle}, core {found.core}"

    return _seeds(run, defect)


def _claims(defect: Defect) -> Iterator[Example]:
    from tests.preemption.claim_clusters import Dice, WeightedDice  # noqa: PLC0415
    from tests.preemption.class_clusters import ClassDice  # noqa: PLC0415
    from tests.preemption.test_claims_oracle import judge  # noqa: PLC0415

    known = {Judge.CLAIMS_BY_WEIGHT: WeightedDice, Judge.CLASSES: ClassDice}
    dice = known.get(defect.judge, Dice)
    return _seeds(lambda seed: judge(seed, dice(seed, PODS_MOST).cluster()), defect)


def _in_queue(defect: Defect) -> Iterator[Example]:
    from tests.preemption.test_in_queue_oracle import check  # noqa: PLC0415

    return _seeds(check, defect)


def _shares(defect: Defect) -> Iterator[Example]:
    from tests.preemption.test_proportion_oracle import check  # noqa: PLC0415

    return _seeds(check, defect)


def _trims(defect: Defect) -> Iterator[Example]:
    from tests.preemption.test_trims import check  # noqa: PLC0415

    return _seeds(check, defect)


def _quotas(defect: Defect) -> Iterator[Example]:
    from tests.preemption.quota_worlds import random_world  # noqa: PLC0415
    from tests.preemption.test_quota_oracle import check  # noqa: PLC0415

    return _seeds(lambda seed: check(random_world(random.Random(seed)), seed), defect)


def _jobs(defect: Defect) -> Iterator[Example]:
    from tests.preemption.test_job_oracle import judge  # noqa: PLC0415

    return _seeds(judge, defect)


def _stories(defect: Defect) -> Iterator[Example]:
    from tests.stories.story import check, stories  # noqa: PLC0415

    for file, story in stories(defect.stories):
        yield Example(f"{file}: {story.title}", partial(check, story))


def _reports(defect: Defect) -> Iterator[Example]:
    from tests.preemption import (  # noqa: PLC0415
        test_lost_work,
        test_thrashing,
        test_unmet,
        test_unmet_jobs,
        test_unmet_jobs_oracle,
        test_unmet_oracle,
    )

    for module in (test_thrashing, test_lost_work, test_unmet, test_unmet_jobs):
        for name, test in vars(module).items():
            if name.startswith("test_") and not hasattr(test, "pytestmark"):
                yield Example(name, partial(_patched, test))
    for case in (*test_unmet.CASES, *test_unmet_jobs.CASES):
        yield Example(case.title, partial(test_unmet.test_what_binds_and_what_cures, case))
    yield from _seeds(test_unmet_oracle.judge, defect)
    yield from _seeds(test_unmet_jobs_oracle.judge, defect, "world of a job")


def _everything(defect: Defect) -> Iterator[Example]:
    from tests.simulation.test_everything import live  # noqa: PLC0415

    return _seeds(lambda seed: live(range(seed, seed + 1)), defect)


def _patched(test: Callable[..., object]) -> None:
    """Run a test that may change the core while it runs, and restore the core afterwards."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        wanted = inspect.signature(test).parameters
        test(**({"monkeypatch": monkeypatch} if wanted else {}))


_JUDGES: Final[Mapping[Judge, Callable[[Defect], Iterator[Example]]]] = {
    Judge.WORLDS: _worlds,
    Judge.WORLDS_BY_WEIGHT: _worlds,
    Judge.WORLDS_WITH_CLASSES: _worlds_with_classes,
    Judge.FLOODS: _floods,
    Judge.EBBS: _ebbs,
    Judge.CLAIMS: _claims,
    Judge.CLAIMS_BY_WEIGHT: _claims,
    Judge.CLASSES: _claims,
    Judge.IN_QUEUE: _in_queue,
    Judge.SHARES: _shares,
    Judge.TRIMS: _trims,
    Judge.QUOTAS: _quotas,
    Judge.JOBS: _jobs,
    Judge.STORIES: _stories,
    Judge.REPORTS: _reports,
    Judge.EVERYTHING: _everything,
}
