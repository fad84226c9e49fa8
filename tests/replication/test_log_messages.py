"""The form of an input log: addresses, the parts of a slice, checkpoints' marks; and slices read from the middle of a feed."""

import random

import pytest

from server.core.core import Core
from server.model.events import ManagerRegistered, NodeAdded
from server.replication import log
from server.replication.applying import Applier, LostError
from server.replication.feed import Feed, Follower, Slice
from server.replication.log import Address, Assembly, Begun, Mark, Message
from tests.effort import cases
from tests.ticks import ticked


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nats://db:4222/one", Address("nats", ("db:4222",), "one")),
        ("nats://db", Address("nats", ("db:4222",), "evenhand")),
        ("tls://a:1,b:2/x-y_Z", Address("tls", ("a:1", "b:2"), "x-y_Z")),
        ("nats://[::1]:9/n", Address("nats", ("[::1]:9",), "n")),
    ],
)
def test_an_address_names_servers_and_a_log(text: str, found: Address) -> None:
    assert log.address(text) == found
    assert log.address(str(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        *("", "db:4222", "http://db", "nats://", "nats://db:x", "nats://db:99999", "nats://:4222"),
        *(
            "nats://a,,b",
            "nats://db/a b",
            "nats://db/a/b",
            "nats://db/" + "n" * 65,
            "nats://u:p@db",
        ),
        "nats://db?x=1",
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(log.BadAddressError):
        log.address(text)


def test_a_slice_of_any_length_is_read_as_it_was_written() -> None:
    for seed in range(cases(20, 5)):
        chance = random.Random(seed)
        slices = [
            Slice(
                *(chance.randrange(1 << 40), chance.randrange(1 << 40)),
                chance.randbytes(chance.choice([0, 16])),
                chance.randbytes(chance.randrange(200)),
                chance.random() < 0.5,
            )
            for _ in range(20)
        ]
        most = chance.randrange(1, 80)
        assembly, found = Assembly(), []
        for one in slices:
            for headers, content in log.messages(one, "t", most):
                assert len(content) <= most
                assert all(headers.values())
                found.append(assembly.take(Message(1, headers, content)))
        assert [one for one in found if one is not None] == slices, f"seed {seed}"


def test_parts_of_a_slice_that_was_not_written_to_its_end_are_dropped() -> None:
    first = list(log.messages(Slice(1, 0, b"", b"abcdef"), "t", 2))
    second = Slice(2, 0, b"", b"xyz")
    begun = Begun("u", "core-2", 7, continues=True)
    assembly = Assembly()
    got = [assembly.take(Message(n, *one)) for n, one in enumerate(first[:2])]
    got.append(assembly.take(Message(3, log.beginning(begun), b"")))
    got.append(assembly.take(Message(4, *first[2])))
    got += [assembly.take(Message(5, *one)) for one in log.messages(second, "u", 2)]
    assert got == [None, None, begun, None, None, second]


@pytest.mark.parametrize(
    "headers",
    [{}, {"Evenhand-Position": "x"}, {"Evenhand-Position": "1", "Evenhand-Part": "1"}],
)
def test_messages_of_other_programs_are_skipped(headers: dict[str, str]) -> None:
    assert Assembly().take(Message(1, headers, b"")) is None


def test_a_mark_is_read_as_it_was_written() -> None:
    mark = Mark("t.1", 42, "core-1", 1_700_000_000_000)
    assert log.mark_of(mark.text()) == mark
    for text in ("", "{}", "[1]", '{"term":"t","after":"x"}', '{"term":"t","after":1}', "null"):
        assert log.mark_of(text) is None


def fed() -> tuple[Feed, Follower]:
    """Return a leader's feed with a follower from its beginning."""
    leader, follower = Feed(Core(), "v"), Follower("log", lambda: None)
    leader.join(follower)
    leader.take([ManagerRegistered("rm")], 1)
    ticked(leader, 1, 100)
    return leader, follower


def add(leader: Feed, number: int) -> None:
    """Give a leader a slice with a node."""
    leader.take([NodeAdded("rm", f"n{number}", (("vcore", 10),))], number)
    ticked(leader, number, 100)


@pytest.mark.parametrize("is_amid", [False, True])
def test_after_renew_a_checkpoint_and_the_slices_after_it_are_enough(*, is_amid: bool) -> None:
    leader, follower = fed()
    add(leader, 2)
    if is_amid:
        leader.take([NodeAdded("rm", "amid", (("vcore", 10),))], 3)
        leader.renew()
        ticked(leader, 3, 100)
    else:
        leader.renew()
    add(leader, 4)
    data = b"".join(leader.checkpoint())
    add(leader, 5)
    slices = follower.take()
    assert sum(one.begins for one in slices) == 2
    mine = Feed(Core(), "v")
    applier = Applier(mine, mine)
    applier.begin(data)
    for one in slices[1:]:  # the first one, with a header, is no longer there
        applier.apply(one)
    assert (mine.position, mine.decided) == (leader.position, leader.decided)
    assert mine._core.digest() == leader._core.digest()
    assert not applier.difference


def test_without_renew_later_slices_cannot_be_read() -> None:
    leader, follower = fed()
    add(leader, 2)
    mine = Feed(Core(), "v")
    applier = Applier(mine, mine)
    applier.begin(b"".join(leader.checkpoint()))
    add(leader, 3)
    first, second, third = follower.take()
    assert applier.apply(second) is None
    with pytest.raises(LostError):
        applier.apply(third)
    assert first.begins
