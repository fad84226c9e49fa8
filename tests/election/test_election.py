"""The election of one shim: never two that may act at one instant, for any delays and failures (design 7.2).

Time is virtual; clocks differ between candidates, in their reading and a little in their speed. Seeds are in the test ids.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from shim_client.election.candidate import Candidate
from shim_client.election.elector import Elector, LeaseLostError, Term
from shim_client.election.lease import BadTermsError, Lease, LeaseTerms
from tests.election.store import Link, Server, moody
from tests.election.virtual_time import run

TERMS = LeaseTerms()
FAIL_OVER = TERMS.duration + 1.0


@dataclass
class Process:
    """A process that stands for election, and acts as soon as it may."""

    name: str
    link: Link
    elector: Elector
    task: asyncio.Task[None]
    terms: list[Term]

    def may_act(self) -> bool:
        return self.elector.seconds_left() > 0

    async def kill(self) -> None:
        """End the process without a last word."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def process(name: str, link: Link, *, offset: float = 0.0, speed: float = 1.0) -> Process:
    """Start a process whose clock has an offset in seconds and a speed."""
    now = asyncio.get_running_loop().time
    elector = Elector(link, Candidate(name, TERMS), lambda: offset + speed * now())
    terms: list[Term] = []

    async def live() -> None:
        running = asyncio.create_task(elector.run())
        try:
            while True:
                term = await elector.acquired()
                terms.append(term)
                await elector.lost(term)
        finally:
            running.cancel()

    return Process(name, link, elector, asyncio.create_task(live()), terms)


@asynccontextmanager
async def processes(server: Server, *names: str) -> AsyncIterator[list[Process]]:
    """Hold processes with quick ways to the server."""
    made = [process(name, Link(server)) for name in names]
    try:
        yield made
    finally:
        for one in made:
            await one.kill()


async def leading(some: list[Process], within: float) -> tuple[Process, float]:
    """Wait until one process may act; return it and the seconds until then."""
    now = asyncio.get_running_loop().time
    began = now()
    while now() < began + within:
        for one in some:
            if one.may_act():
                return one, now() - began
        await asyncio.sleep(0.01)
    raise AssertionError(f"no leader within {within} s")


def test_a_free_lease_is_taken_and_kept() -> None:
    async def work() -> None:
        server = Server()
        async with processes(server, "one", "two") as some:
            leader, _ = await leading(some, 1.0)
            for _ in range(600):
                await asyncio.sleep(0.1)
                assert [one for one in some if one.may_act()] == [leader]
            assert leader.terms == [Term(1, 1)]
            assert server.lease is not None
            assert (server.lease.holder, server.lease.transitions) == (leader.name, 1)

    run(work())


def test_after_a_kill_the_other_one_leads_within_the_lease_and_a_second() -> None:
    async def work() -> list[float]:
        took = []
        for after in (0.0, 0.7, 1.3, 1.9, 2.0, 2.1):
            server = Server()
            async with processes(server, "one", "two") as some:
                leader, _ = await leading(some, 1.0)
                await asyncio.sleep(4.0 + after)
                await leader.kill()
                [other] = [one for one in some if one is not leader]
                assert not other.may_act()
                _, seconds = await leading([other], FAIL_OVER)
                took.append(seconds)
                assert other.terms[0].epoch > leader.terms[-1].epoch
        return took

    took = run(work())
    assert max(took) <= FAIL_OVER
    assert min(took) > TERMS.duration - TERMS.renew - 0.1


def test_a_lease_that_is_given_back_is_taken_at_once() -> None:
    async def work() -> float:
        server = Server()
        async with processes(server, "one", "two") as some:
            leader, _ = await leading(some, 1.0)
            await asyncio.sleep(3.3)
            await leader.kill()
            await leader.elector.release()
            assert not leader.may_act()
            assert server.lease is not None
            other, seconds = await leading([one for one in some if one is not leader], 1.0)
            assert other.terms[0].epoch == 2
            return seconds

    assert run(work()) <= TERMS.look + 0.1


def test_a_process_that_is_cut_off_stops_before_the_other_one_starts() -> None:
    async def work() -> None:
        server = Server()
        now = asyncio.get_running_loop().time
        async with processes(server, "one", "two") as some:
            leader, _ = await leading(some, 1.0)
            [other] = [one for one in some if one is not leader]
            await asyncio.sleep(5.1)
            leader.link.cut = True
            cut = now()
            while leader.may_act():
                assert not other.may_act()
                await asyncio.sleep(0.01)
            assert now() - cut <= TERMS.duration - TERMS.margin
            stopped = now()
            await leading([other], 2.0)
            assert now() - stopped >= TERMS.margin - 0.05
            leader.link.cut = False
            await asyncio.sleep(30)
            assert not leader.may_act()
            assert [term.epoch for term in other.terms] == [2]

    run(work())


def test_a_late_renewal_does_not_bring_a_term_back() -> None:
    """The answer to a renewal comes after the term has ended: what was decided meanwhile is lost, so another term begins."""
    candidate = Candidate("one", TERMS)
    candidate.saw(None, 0.0)
    taken = candidate.next_write(0.0)
    assert taken is not None
    candidate.wrote(taken, Lease("1", "one", 6, 1), 0.0, 0.0)
    renewal = candidate.next_write(4.9)
    assert renewal is not None
    assert not renewal.acquires
    assert candidate.holds(4.9)
    assert not candidate.holds(5.0)
    candidate.wrote(renewal, Lease("2", "one", 6, 1), 4.9, 5.1)
    assert not candidate.holds(5.1)
    again = candidate.next_write(5.1)
    assert again is not None
    assert (again.acquires, again.transitions) == (True, 2)


def test_the_term_counts_from_the_start_of_the_request() -> None:
    candidate = Candidate("one", TERMS)
    candidate.saw(None, 0.0)
    taken = candidate.next_write(0.0)
    assert taken is not None
    candidate.wrote(taken, Lease("1", "one", 6, 1), 0.0, 1.9)
    assert candidate.seconds_left(1, 1.9) == pytest.approx(3.1)
    assert candidate.holds(4.99)
    assert not candidate.holds(5.0)


def test_the_duration_that_the_holder_wrote_counts() -> None:
    candidate = Candidate("two", TERMS)
    candidate.saw(Lease("1", "one", 60, 1), 0.0)
    assert candidate.next_write(59.9) is None
    taken = candidate.next_write(60.0)
    assert taken is not None
    assert (taken.version, taken.transitions) == ("1", 2)


def test_a_lease_that_was_deleted_gets_a_higher_epoch() -> None:
    async def work() -> None:
        server = Server()
        async with processes(server, "one", "two") as some:
            leader, _ = await leading(some, 1.0)
            await leader.kill()
            await leading(some[:0] + [one for one in some if one is not leader], FAIL_OVER)
            server.delete()
            await asyncio.sleep(3.0)
            _, _ = await leading(some, FAIL_OVER)
            assert server.lease is not None
            assert server.lease.transitions == 3

    run(work())


def test_the_epoch_is_raised_above_that_of_a_core() -> None:
    async def work() -> None:
        server = Server()
        async with processes(server, "one", "two") as some:
            leader, _ = await leading(some, 1.0)
            term = leader.terms[-1]
            raised = await leader.elector.raised(term, 40)
            assert (raised.number, raised.epoch) == (term.number, 41)
            assert leader.may_act()
            await asyncio.sleep(20.0)
            assert leader.may_act()
            assert leader.terms == [term]
            await leader.kill()
            [other] = [one for one in some if one is not leader]
            await leading([other], FAIL_OVER)
            assert other.terms[0].epoch == 42

    run(work())


def test_the_epoch_of_a_lost_term_is_not_raised() -> None:
    async def work() -> None:
        server = Server()
        async with processes(server, "one", "two") as some:
            leader, _ = await leading(some, 1.0)
            term = leader.terms[-1]
            leader.link.cut = True
            with pytest.raises(LeaseLostError):
                await leader.elector.raised(term, 40)
            assert not leader.may_act()

    run(work())


def test_failed_attempts_to_raise_the_epoch_do_not_burden_the_server() -> None:
    async def work() -> int:
        server = Server()
        async with processes(server, "one") as [only]:
            await leading([only], 1.0)
            only.link.cut = True
            before = only.link.requests
            with pytest.raises(LeaseLostError):
                await only.elector.raised(only.terms[-1], 40)
            return only.link.requests - before

    assert run(work()) <= 3 * TERMS.duration / TERMS.look


def test_after_it_resigned_a_process_acts_in_another_term_only() -> None:
    async def work() -> None:
        server = Server()
        async with processes(server, "one") as [only]:
            await leading([only], 1.0)
            only.elector.resign()
            assert not only.may_act()
            await leading([only], 3.0)
            assert [term.epoch for term in only.terms] == [1, 2]

    run(work())


@pytest.mark.parametrize("seed", range(60))
def test_never_two_may_act_at_one_instant(seed: int) -> None:
    run(struggle(seed))


async def struggle(seed: int) -> None:
    """Let three processes struggle for a lease over ways that are slow, failing and cut, and look all the time."""
    dice = random.Random(seed)
    server = Server()
    loop = asyncio.get_running_loop()
    made = 0
    some: list[Process] = []

    def begin() -> Process:
        nonlocal made
        made += 1
        offset, speed = dice.uniform(-1e6, 1e6), dice.uniform(0.99, 1.01)
        return process(f"p{made}", moody(dice, server), offset=offset, speed=speed)

    some += [begin() for _ in range(3)]
    led, end = set[tuple[str, int]](), 240.0
    over = set[tuple[str, Term]]()
    ahead = 0.0
    while loop.time() < end:
        acting = [one for one in some if one.may_act()]
        assert len(acting) <= 1, f"seed {seed}, second {loop.time():.2f}: {acting}"
        led |= {(one.name, one.terms[-1].epoch) for one in acting if one.terms}
        over |= {(one.name, one.terms[-1]) for one in some if one.terms and one not in acting}
        back = [one for one in acting if one.terms and (one.name, one.terms[-1]) in over]
        assert back == [], f"seed {seed}, second {loop.time():.2f}: a term came back: {back}"
        if loop.time() >= ahead:
            ahead = loop.time() + dice.uniform(1.0, 12.0)
            await disturb(dice, some, begin, server)
        await asyncio.sleep(dice.choice((0.005, 0.02, 0.05)))
    await mend(some)
    assert led, "some process led meanwhile"
    epochs = [epoch for _, epoch in led]
    assert len(set(epochs)) == len(epochs), "each term has an epoch of its own"
    for one in some:
        await one.kill()


async def mend(some: list[Process]) -> None:
    """Make every way quick and reliable again, and wait for a leader."""
    for one in some:
        one.link.cut, one.link.fails = False, lambda: False
        one.link.there = one.link.back = lambda: 0.01
    await leading(some, 2 * FAIL_OVER)


async def disturb(dice: random.Random, some: list[Process], begin: object, server: Server) -> None:
    """Kill and replace a process, cut or mend its way, let it give the lease back, or change its way's mood.

    A way whose last answer is late and that is cut then is the one on which it matters from when the holder counts.
    """
    assert callable(begin)
    place = dice.randrange(len(some))
    one = some[place]
    match dice.randrange(7):
        case 0:
            await one.kill()
            some[place] = begin()
        case 1:
            one.link.cut = not one.link.cut
        case 2:
            await one.kill()
            await one.elector.release()
            some[place] = begin()
        case 3:
            one.elector.resign()
        case 4:
            one.link.there, one.link.back = (lambda: 0.01), (lambda: dice.uniform(1.2, 1.95))
            one.link.fails, one.link.cut_next = (lambda: False), True
        case _:
            mood = moody(dice, server)
            one.link.there, one.link.back, one.link.fails = mood.there, mood.back, mood.fails


@pytest.mark.parametrize(
    "terms",
    [
        LeaseTerms(4, 2.0, 1.0),
        LeaseTerms(6, 3.0, 1.0),
        LeaseTerms(6, 0.0, 1.0),
        LeaseTerms(6, 2.0, 0.0),
        LeaseTerms(6, 2.0, 1.0, 0.0),
        LeaseTerms(-6, 2.0, 1.0),
    ],
)
def test_durations_with_which_no_lease_is_safe_are_refused(terms: LeaseTerms) -> None:
    with pytest.raises(BadTermsError):
        Candidate("one", terms)
