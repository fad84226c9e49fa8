"""What an armed quota run would do to a running pod, asked by operators and by the pod's own tenant over a socket."""

from typing import Any

from server.config import load
from server.core.queries.quota_outlook import QuotaOutlook
from server.model.events import ConfigurationApplied
from server.preemption.quota.enforcement import AllocationStanding
from server.rpc.evenhand import quota_text
from tests.rpc.harness import Served
from tests.rpc.test_decisions_live import LENT, OWED, QUEUES, explained, full

DELAY = "properties: {quota.preemption.delay: 10s}"


def lower(served: Served, where: str = DELAY) -> None:
    """Give root.lent a maximum of 4 millicores; it uses 10."""
    text = QUEUES.replace(DELAY, f"{where}\n            resources: {{max: {{vcore: 4m}}}}")
    found, problems = load(text)
    assert found is not None, problems
    served.core.handle(ConfigurationApplied(found, "lowered"), served.clock.ms)


async def of_all(served: Served, metadata: Any = None) -> list[Any]:
    """Return the outlook of each pod of root.lent."""
    found = [await explained(served, f"lent-{number}", metadata) for number in range(10)]
    return [one.placed.quota_outlook[0] for one in found]


async def test_a_pod_is_told_its_place_and_whether_it_would_be_evicted() -> None:
    async with full() as (served, _stream):
        lower(served)
        before = served.core.digest()
        found = await of_all(served)
        assert served.core.digest() == before
        assert sorted(one.rank for one in found) == list(range(1, 11))
        assert [one.evicted for one in sorted(found, key=lambda one: one.rank)] == (
            [True] * 6 + [False] * 4
        )
        first = next(one for one in found if one.rank == 1)
        assert (first.queue, dict(first.over), first.victims) == ("root.lent", {"vcore": 6}, 6)
        assert first.sentence == (
            "Queue root.lent is 0.006 cores over its max; enforcement starts in 10 s. "
            "This pod is number 1 of 10 in the order and would be evicted."
        )
        last = next(one for one in found if one.rank == 10)
        assert last.law == "not-needed"
        assert last.sentence.endswith(
            "number 10 of 10 in the order and would not be evicted: the eviction of 6 other pods is enough."
        )


async def test_a_pod_s_own_tenant_is_told_too_and_no_other_one() -> None:
    async with full() as (served, _stream):
        lower(served)
        assert await of_all(served, LENT) == await of_all(served)
        hidden = await explained(served, "lent-1", OWED)
        assert not hidden.HasField("placed")


def test_numbers_of_a_queue_above_its_own_are_not_a_tenant_s_to_read() -> None:
    found = QuotaOutlook(
        "root.pool",
        {"vcore": 6},
        5_000,
        AllocationStanding(2, 9, ""),
        victims=3,
        refusal="",
        observed=True,
    )
    told = quota_text.picture(found, 5_000, hidden=True)
    assert not told.over
    assert told.sentence == (
        "Queue root.pool is over its max; enforcement starts now, but the partition only observes. "
        "This pod is number 2 of 9 in the order and would be evicted."
    )


def test_a_protected_pod_is_told_the_rule() -> None:
    standing = AllocationStanding(0, 9, "required-node")
    found = QuotaOutlook(
        "root.pool", {"vcore": 6_000}, 5_000, standing, victims=3, refusal="", observed=False
    )
    told = quota_text.picture(found, 0, hidden=False)
    assert (told.rank, told.evicted, told.law) == (0, False, "required-node")
    assert told.sentence == (
        "Queue root.pool is 6 cores over its max; enforcement starts in 5 s. "
        "This pod would not be evicted: it was made for its node, as a DaemonSet's pods are (G6, Q10) (`required-node`)."
    )
