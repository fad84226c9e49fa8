"""The fast path of decoding gives what the generated classes give, for all bytes."""

import random

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from server.model.asks import AskSpec, Generation
from server.model.decisions import Placed, Released, Termination
from server.model.events import AskAdded
from server.model.parts import whole
from server.model.resources import resource
from server.rpc.limits import OBJECTS_MAX
from server.rpc.tags import decoded
from server.rpc.translate import answers, answers_fast
from server.rpc.translate.allocations import Batch, Reader
from server.rpc.translate.allocations_fast import AllocationCodec, MalformedError
from server.rpc.translate.answers_fast import PlacementEncoder, ReleaseEncoder
from si.v1 import si_pb2 as si
from tests.effort import cases
from tests.rpc import plainly
from tests.rpc.messages import allocation_requests, broken, shaken, tags

CODEC = AllocationCodec(Reader())
"""One for all examples, so that its caches are warm with other examples' templates."""


def batch_of(data: bytes) -> Batch:
    """Return the batch of a message."""
    return whole(CODEC.decoding(data))


def agree(data: bytes) -> None:
    """Assert that codec and generated classes both refuse the bytes, or both read the same."""
    try:
        expected = plainly.read(data)
    except DecodeError:
        with pytest.raises(MalformedError):
            batch_of(data)
        return
    assert plainly.meaning_of(batch_of(data)) == expected
    assert plainly.meaning_of(batch_of(data)) == expected


@given(allocation_requests)
def test_reads_what_the_generated_classes_read(message: si.AllocationRequest) -> None:
    agree(message.SerializeToString())


@given(allocation_requests, st.integers(0, 1 << 32))
def test_order_repetition_and_unknown_fields_mean_what_protobuf_says(
    message: si.AllocationRequest, seed: int
) -> None:
    agree(shaken(message.SerializeToString(), random.Random(seed)))


@given(allocation_requests, st.integers(0, 1 << 32))
@settings(max_examples=cases(150))
def test_damaged_bytes_are_refused_when_the_generated_classes_refuse_them(
    message: si.AllocationRequest, seed: int
) -> None:
    agree(broken(message.SerializeToString(), random.Random(seed)))


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    agree(data)


@pytest.mark.parametrize("size", [0, *range(100, 132), *range(16_360, 16_388), 40_000])
def test_one_ask_alone_of_any_size(size: int) -> None:
    """A message of one is cut without a second look at its lengths: tags and template each take one byte or two."""
    tags_of_size = {"a": "x" * size} if size else {}
    one = si.Allocation(allocationKey="k", applicationID="app", allocationTags=tags_of_size)
    one.resourcePerAlloc.resources["vcore"].value = 1
    agree(si.AllocationRequest(allocations=[one]).SerializeToString())
    one.taskGroupName, one.allocationTags["b"] = "g" * size, "c"
    agree(si.AllocationRequest(allocations=[one]).SerializeToString())
    ask = si.AllocationAsk(allocationKey="k", applicationID="app", tags=tags_of_size)
    agree(si.AllocationRequest(asks=[ask]).SerializeToString())


def _ask(key: str, *types: str) -> si.Allocation:
    quantities = {name: si.Quantity(value=5) for name in types}
    return si.Allocation(
        allocationKey=key,
        applicationID="app",
        resourcePerAlloc=si.Resource(resources=quantities),
    )


def _specs(batch: Batch) -> list[AskSpec]:
    return [event.spec for event in batch.events if isinstance(event, AskAdded)]


def test_asks_of_one_template_share_one_spec_in_whatever_order_their_maps_are() -> None:
    forward = si.AllocationRequest(allocations=[_ask("a", "vcore", "memory", "pods")])
    backward = si.AllocationRequest(allocations=[_ask("b", "pods", "memory", "vcore")])
    specs = _specs(batch_of(forward.SerializeToString()))
    specs += _specs(batch_of(backward.SerializeToString()))
    assert specs[0] is specs[1]


def test_more_objects_than_allowed_are_no_message() -> None:
    message = si.AllocationRequest(allocations=[_ask("a", "vcore")] * (OBJECTS_MAX + 1))
    with pytest.raises(MalformedError, match="10001 objects"):
        batch_of(message.SerializeToString())


def test_a_sub_message_in_two_parts_is_merged() -> None:
    first, second = _ask("a", "vcore"), _ask("a", "memory")
    data = si.AllocationRequest(allocations=[first]).allocations[0].SerializeToString()
    data += second.SerializeToString()
    (spec,) = _specs(batch_of(bytes([0x22, len(data)]) + data))
    assert spec.resource == (("memory", 5), ("vcore", 5))


@given(
    tags,
    st.sampled_from(Generation),
    st.builds(
        AskSpec,
        resource=st.sampled_from([(), (("memory", 1 << 40), ("vcore", 1))]),
        priority=st.integers(-(1 << 31), (1 << 31) - 1),
        originator=st.booleans(),
        allow_preempt_self=st.booleans(),
        allow_preempt_other=st.booleans(),
        placeholder=st.booleans(),
        task_group=st.text(max_size=3),
    ),
)
def test_a_placement_is_the_message_that_the_generated_classes_would_write(
    entries: dict[str, str], generation: Generation, spec: AskSpec
) -> None:
    if generation is Generation.ASK:
        raw = si.AllocationAsk(tags=entries).SerializeToString()
    else:
        raw = si.Allocation(allocationTags=entries).SerializeToString()
    held = (raw,) if raw else ()
    placed = Placed("rm", "default", "käy", "app", "node", spec, held, generation)
    (piece,) = PlacementEncoder().encode([placed])
    expected = si.Allocation(
        allocationKey="käy",
        UUID="käy" if generation is Generation.ASK else "",
        allocationTags=entries,
        resourcePerAlloc=si.Resource(
            resources={name: si.Quantity(value=value) for name, value in spec.resource}
        ),
        priority=spec.priority,
        nodeID="node",
        applicationID="app",
        partitionName="default",
        taskGroupName=spec.task_group,
        placeholder=spec.placeholder,
        originator=spec.originator,
    )
    expected.preemptionPolicy.allowPreemptSelf = spec.allow_preempt_self
    expected.preemptionPolicy.allowPreemptOther = spec.allow_preempt_other
    assert si.AllocationResponse.FromString(piece) == si.AllocationResponse(new=[expected])
    assert decoded(held) == entries


@given(
    st.builds(
        Released,
        rm_id=st.just("rm"),
        partition=st.sampled_from(["default", ""]),
        key=st.text(max_size=200),
        application_id=st.text(max_size=5),
        termination=st.sampled_from(Termination),
        message=st.one_of(st.just(""), st.text(min_size=120, max_size=150)),
        decision_id=st.text(max_size=3),
        beneficiary=st.text(max_size=3),
        nodes=st.lists(st.text(max_size=3), max_size=2).map(tuple),
        generation=st.sampled_from(Generation),
        delivery=st.sampled_from(["", "evict"]),
    )
)
def test_a_release_is_the_message_that_the_generated_classes_would_write(one: Released) -> None:
    """Also for others of the decision, of which only key and message differ, or only the key, as long or longer."""
    others = [one._replace(key="another", message="why"), one._replace(key="a third one")]
    releases = [one, *others, one._replace(key=one.key[::-1])]
    pieces = ReleaseEncoder().encode(releases)
    for piece, released in zip(pieces, releases, strict=True):
        assert si.AllocationResponse.FromString(piece) == answers.released(released)


def test_an_encoder_keeps_so_many_pieces_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all partitions, and each spec is encoded once as long as there is space."""
    monkeypatch.setattr(answers_fast, "PIECES_MAX", 10)
    made: list[AskSpec] = []
    plain = answers_fast.template

    def template(spec: AskSpec, partition: str) -> bytes:
        made.append(spec)
        return plain(spec, partition)

    monkeypatch.setattr(answers_fast, "template", template)
    encoder = PlacementEncoder()
    full = [AskSpec(resource({"memory": 1 + at})) for at in range(10)]
    few = [AskSpec(resource({"memory": 100 + at})) for at in range(3)]
    encoder.encode([_placement("a", spec) for spec in full])
    encoder.encode([_placement("b", spec) for _ in range(9) for spec in few])
    assert made == full + few


def _placement(partition: str, spec: AskSpec) -> Placed:
    return Placed("rm", partition, "key", "app", "node", spec, (), Generation.ASK)
