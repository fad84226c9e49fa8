"""Actions: those on one object in order, failures retried, permanent failures reported."""

import asyncio

import pytest

from shim_client.cluster import (
    Action,
    Bind,
    BudgetError,
    ClusterError,
    ConflictError,
    DeletePod,
    EvictPod,
    MissingError,
    ObjectRef,
    PatchPod,
    ReadOwner,
    RecordEvent,
    ReleasePod,
)
from shim_client.config import VOLUME_BIND_MS
from shim_client.executor import (
    BIND_PAUSES,
    EVENT_PAUSES,
    EVENTS_WAITING_MAX,
    IN_FLIGHT_MAX,
    POD_PAUSES,
    RETRY_AFTER_MAX,
    Applier,
)
from tests.shim.polling import until


def ref(name: str) -> ObjectRef:
    return ObjectRef("Pod", "work", name, f"uid-{name}")


class Writer:
    """A cluster that fails as told and remembers."""

    def __init__(self, *errors: ClusterError, at: type | None = None) -> None:
        self.errors = list(errors)
        self.at = at
        """Fails at orders of this type alone; None: at any."""
        self.done: list[Action | EvictPod] = []

    async def _do(self, order: Action | EvictPod) -> None:
        await asyncio.sleep(0)
        if self.errors and self.at in (None, type(order)):
            raise self.errors.pop(0)
        self.done.append(order)

    bind = create_pod = delete_pod = evict_pod = patch_pod = record_event = _do

    async def pods_wanted(self, owner: ObjectRef) -> int:
        """Return the number of letters in the owner's name."""
        await self._do(ReadOwner(owner, ""))
        return len(owner.name)


async def play(
    writer: Writer, *actions: Action, volumes_ms: int = VOLUME_BIND_MS
) -> tuple[list[str], list[float]]:
    """Run actions to their end; returns what was told and the pauses that were made."""
    told: list[str] = []
    pauses: list[float] = []

    async def tell(action: Action, error: ClusterError | None) -> None:
        told.append(f"{type(action).__name__} {type(error).__name__ if error else 'done'}")

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    applier = Applier(writer, tell, sleep, volumes_ms=volumes_ms)
    running = asyncio.create_task(applier.run())
    applier.submit(actions)
    await until(lambda: applier.progress.waiting == 0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return told, pauses


async def test_the_actions_of_one_object_keep_their_order() -> None:
    writer = Writer()
    actions: list[Action] = [
        action
        for name in "abc"
        for action in (
            PatchPod(ref(name), annotations={"k": "v"}),
            RecordEvent(ref(name), "R", "m"),
        )
    ]
    actions += [DeletePod(ref(name)) for name in "abc"]
    told, _ = await play(writer, *actions)
    for name in "abc":
        others = RecordEvent | ReadOwner
        mine = [a for a in writer.done if not isinstance(a, others) and a.pod == ref(name)]
        assert [type(action) for action in mine] == [PatchPod, DeletePod]
    assert told == ["DeletePod done"] * 3


async def test_what_happens_goes_before_telling_of_it() -> None:
    writer = Writer()
    names = [f"p{number}" for number in range(2 * IN_FLIGHT_MAX)]
    events = [RecordEvent(ref(name), "R", "m") for name in names]
    said = ("PodScheduled", "False", "Unschedulable", "full")
    conditions = [PatchPod(ref(f"c{name}"), condition=said) for name in names]
    await play(writer, *events, *conditions, *(Bind(ref(f"b{name}"), "n") for name in names))
    later = [type(action) for action in writer.done[IN_FLIGHT_MAX:]]
    order = {Bind: 0, PatchPod: 1, RecordEvent: 2}
    assert later == sorted(later, key=lambda kind: order[kind])


async def test_an_answer_comes_back_with_the_question() -> None:
    heard: list[Action] = []

    async def tell(action: Action, error: ClusterError | None) -> None:
        assert error is None
        heard.append(action)

    applier = Applier(Writer(), tell)
    running = asyncio.create_task(applier.run())
    owner = ObjectRef("Job", "work", "train", "uid-train")
    applier.submit([ReadOwner(owner, "job")])
    await until(lambda: applier.progress.waiting == 0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert heard == [ReadOwner(owner, "job", wanted=5)]


@pytest.mark.parametrize(
    ("volumes_ms", "waited"),
    [
        (0, []),
        (500, [0.5]),
        (4_000, [1.0, 2.0, 1.0]),
        (120_000, [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 29.0]),
        (600_000, [1.0, 2.0, 4.0, 8.0, 16.0, *[30.0] * 18, 29.0]),
    ],
)
async def test_a_pod_waits_for_its_volumes_as_long_as_the_setting_says(
    volumes_ms: int, waited: list[float]
) -> None:
    missing = [ClusterError("no volume yet")] * (len(waited) + 1)
    order = Bind(ref("a"), "n1", (("data", ""),))
    told, pauses = await play(Writer(*missing), order, volumes_ms=volumes_ms)
    assert (told, pauses) == (["Bind ClusterError"], waited)
    told, pauses = await play(Writer(*missing[1:]), order, volumes_ms=volumes_ms)
    assert (told, pauses) == (["Bind done"], waited)


async def test_a_pod_without_claims_is_bound_as_before() -> None:
    failing = Writer(*[ClusterError("503")] * 3)
    told, pauses = await play(failing, Bind(ref("a"), "n1"), volumes_ms=0)
    assert (told, pauses) == (["Bind done"], list(BIND_PAUSES[:3]))


async def test_an_owner_that_cannot_be_read_is_given_up_soon() -> None:
    owner = ObjectRef("Job", "work", "train", "uid-train")
    told, pauses = await play(Writer(*[ClusterError("403")] * 3), ReadOwner(owner, "job"))
    assert (told, pauses) == (["ReadOwner ClusterError"], [1.0, 2.0])


async def test_a_condition_that_is_out_of_date_is_left_out() -> None:
    writer = Writer()
    full, over = (
        PatchPod(ref("a"), condition=("PodScheduled", "False", "Unschedulable", why))
        for why in ("full", "over quota")
    )
    await play(writer, full, over, RecordEvent(ref("a"), "R", "m"))
    assert [action for action in writer.done if isinstance(action, PatchPod)] == [over]
    writer.done.clear()
    await play(writer, full, Bind(ref("a"), "n"))
    assert writer.done == [Bind(ref("a"), "n")]


async def test_events_beyond_the_limit_are_dropped() -> None:
    writer = Writer()
    events = [RecordEvent(ref(f"p{n}"), "R", "m") for n in range(EVENTS_WAITING_MAX + 5)]
    await play(writer, *events)
    assert len(writer.done) == EVENTS_WAITING_MAX


async def test_a_pause_that_the_cluster_asks_for_is_kept() -> None:
    asked = [ClusterError("429", retry_after=7), ClusterError("429", retry_after=9999)]
    told, pauses = await play(Writer(*asked), Bind(ref("a"), "n"))
    assert (told, pauses) == (["Bind done"], [7, RETRY_AFTER_MAX])


async def test_what_may_pass_is_tried_again() -> None:
    told, pauses = await play(Writer(ClusterError("500"), ClusterError("429")), Bind(ref("a"), "n"))
    assert (told, pauses) == (["Bind done"], [1.0, 2.0])


@pytest.mark.parametrize("error", [ConflictError("taken"), MissingError("gone")])
async def test_what_cannot_pass_is_not(error: ClusterError) -> None:
    told, pauses = await play(Writer(error), Bind(ref("a"), "n"))
    assert (told, pauses) == ([f"Bind {type(error).__name__}"], [])


async def test_tries_have_an_end() -> None:
    errors = [ClusterError("500")] * 9
    told, pauses = await play(Writer(*errors), Bind(ref("a"), "n"))
    assert (told, pauses) == (["Bind ClusterError"], list(BIND_PAUSES))
    told, pauses = await play(Writer(*errors), PatchPod(ref("a")))
    assert (told, pauses) == (["PatchPod ClusterError"], list(POD_PAUSES))
    told, pauses = await play(Writer(*errors), RecordEvent(ref("a"), "R", "m"))
    assert (told, pauses) == (["RecordEvent ClusterError"], list(EVENT_PAUSES))


def release(name: str, *, evicts: bool = False) -> ReleasePod:
    who = ref(name)
    note = PatchPod(who, annotations={"k": "v"})
    return ReleasePod(who, EvictPod(who) if evicts else DeletePod(who), note, "d1")


@pytest.mark.parametrize(("evicts", "end"), [(False, DeletePod), (True, EvictPod)])
async def test_a_release_is_written_on_the_pod_before_it_goes(
    *, evicts: bool, end: type[DeletePod | EvictPod]
) -> None:
    writer = Writer()
    told, _ = await play(writer, release("a", evicts=evicts))
    assert [type(action) for action in writer.done] == [PatchPod, end]
    assert told == ["ReleasePod done"]


async def test_a_victim_on_which_nothing_can_be_written_stays() -> None:
    writer = Writer(ConflictError("409"))
    told, _ = await play(writer, release("a"))
    assert (writer.done, told) == ([], ["ReleasePod ConflictError"])


async def test_an_eviction_that_the_budget_refuses_is_not_tried_again() -> None:
    refusing = Writer(BudgetError("429"), at=EvictPod)
    told, pauses = await play(refusing, release("a", evicts=True))
    assert (told, pauses) == (["ReleasePod BudgetError"], [])


async def test_a_release_that_fails_half_way_is_done_again_from_its_beginning() -> None:
    writer = Writer(ClusterError("500"), at=DeletePod)
    told, pauses = await play(writer, release("a"))
    assert [type(action) for action in writer.done] == [PatchPod, PatchPod, DeletePod]
    assert (told, pauses) == (["ReleasePod done"], [1.0])
