"""Errors reach the client: for all input, their status is small enough for the headers that carry it."""

import base64
from urllib.parse import quote

import grpc
import pytest
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from evenhand.v1 import decisions_pb2, decisions_pb2_grpc
from server.rpc.errors import CallError, invalid, malformed, not_found, shortened
from server.rpc.limits import STATUS_BYTES_MAX
from tests.rpc.harness import RM, serving

TEXTS = st.text(max_size=3_000) | st.sampled_from(
    ["k" * 100_000, "\u00fc" * 9_000, "\0" * 5_000, "%" * 5_000]
)
VIOLATIONS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=60)
PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
QUEUE = "    - {name: q, resourcez: {max: {vcore: 1}}}\n"
HEAD = "partitions:\n- name: default\n  queues:\n  - name: root\n    queues:\n"


def sent_bytes(error: CallError) -> int:
    """Return how many bytes a status takes in headers."""
    details = base64.b64encode(error.status().SerializeToString())
    return len(quote(error.message, safe=PLAIN)) + len(details)


@given(violations=VIOLATIONS)
def test_of_many_violations_a_status_has_the_first_and_the_number_of_the_others(
    violations: list[tuple[str, str]],
) -> None:
    error = invalid("REASON", *violations)
    assert sent_bytes(error) <= STATUS_BYTES_MAX + len(
        error.message
    )  # quote() encodes more than gRPC does
    (detail,) = error.details
    assert isinstance(detail, error_details_pb2.BadRequest)
    bad = detail.field_violations
    listed = [one for one in bad if not one.description.endswith("more problems")]
    assert listed
    if len(bad) > len(listed):
        assert bad[-1].description == f"{len(violations) - len(listed)} more problems"


@given(text=TEXTS)
def test_names_and_messages_are_shortened(text: str) -> None:
    for error in (not_found("node", text), malformed(text)):
        assert sent_bytes(error) <= STATUS_BYTES_MAX


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("node-1", 6, "node-1"),
        ("node-12", 6, "nod..."),
        ("\u00fc" * 3, 9, "\u00fc..."),
        ("\u00fc", 6, "\u00fc"),
    ],
)
def test_a_text_is_cut_where_its_bytes_end(text: str, limit: int, kept: str) -> None:
    assert shortened(text, limit) == kept


@pytest.mark.parametrize("many", [1, 20, 60, 200, 2_000])
async def test_a_registration_with_many_mistakes_is_told_the_first(many: int) -> None:
    async with serving() as served:
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await served.register(RM, config=HEAD + many * QUEUE)
    assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    text = str(found.value.details())
    assert "line 6" in text
    assert "resourcez" in text
    assert text.startswith("config") if many == 1 else "problems" in text


@pytest.mark.parametrize("characters", [1_024, 5_000, 4_000_000])
async def test_a_name_that_is_not_there_may_be_long(characters: int) -> None:
    async with serving() as served:
        stub = decisions_pb2_grpc.DecisionServiceStub(served.channel)
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await stub.GetDecision(decisions_pb2.GetDecisionRequest(decision_id="x" * characters))
    assert found.value.code() is grpc.StatusCode.NOT_FOUND
    assert "xxx..." in str(found.value.details())
