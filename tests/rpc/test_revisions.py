"""Applies from several operators and shims: none undoes a change that it has not seen."""

import asyncio
import re
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from evenhand.v1 import config_pb2, config_pb2_grpc
from server.config import diff
from server.model.revisions import Base, Revision
from server.rpc.errors import CallError, stale_configuration
from server.rpc.identity import Identities, digest
from server.rpc.roles import Caller, Role
from si.v1 import si_pb2 as si
from tests.core.test_revisions import made, text
from tests.rpc.harness import SETTING, Served, refusal, serving, with_identities
from tests.rpc.test_statuses import sent_bytes

CALLERS = [
    Caller("ada", Role.OPERATOR),
    Caller("bob", Role.OPERATOR),
    Caller("shim", Role.SHIM, manager="rm"),
    Caller("rival", Role.SHIM, manager="other"),
    Caller("eve", Role.VIEWER, "root.a"),
]
KNOWN = with_identities(
    Identities(open_to_all=False, tokens={digest(one.name): one for one in CALLERS})
)
STALE = (grpc.StatusCode.ABORTED, "STALE_CONFIGURATION")


def stub(served: Served) -> Any:
    return config_pb2_grpc.ConfigurationServiceStub(served.channel)


def apply(served: Served, *leaves: str, by: str = "ada", **more: Any) -> Any:
    request = config_pb2.ApplyRequest(yaml=text(*leaves), **more)
    return stub(served).Apply(request, metadata=(("authorization", f"Bearer {by}"),) if by else ())


def get(served: Served) -> Any:
    token = (("authorization", "Bearer ada"),)
    return stub(served).Get(config_pb2.GetRequest(), metadata=token)


def register(served: Served, *leaves: str) -> Any:
    request = si.RegisterResourceManagerRequest(rmID="rm", config=text(*leaves))
    token = (("authorization", "Bearer shim"),)
    return served.stub.RegisterResourceManager(request, metadata=token)


async def test_of_two_operators_with_one_base_the_second_loses_nothing_of_the_first() -> None:
    """D10: both answers were `applied: true`, and the first one's queue was gone."""
    async with serving(KNOWN) as served:
        await apply(served, "a", by="ada")
        base = await get(served)
        one = {"base_revision": base.revision, "base_digest": base.digest}
        first = await apply(served, "a", "adas", by="ada", source="apply ada.yaml", **one)
        assert (first.applied, first.revision_before, first.revision) == (True, 2, 3)
        before = served.core.digest()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await apply(served, "a", "bobs", by="bob", **one)
        assert served.core.digest() == before
        assert refused.value.code() is grpc.StatusCode.ABORTED
        said = str(refused.value.details())
        assert "made from revision 2" in said
        assert "revision 3 by ada (apply ada.yaml)" in said
        changed, advice = details(refused.value)
        assert changed == [("queue root.adas", "added")]
        assert any("config show" in line for line in advice)
        assert any("--force" in line for line in advice)
        now = await get(served)
        assert (now.revision, now.applied_by, now.source) == (3, "ada", "apply ada.yaml")


async def test_an_apply_is_answered_when_all_partitions_have_the_text() -> None:
    """The core changes one partition in each tick."""
    one = text("a").removeprefix("partitions: [").removesuffix("]\n")
    other = one.replace("default", "p")
    request = config_pb2.ApplyRequest(yaml=f"partitions: [{one}, {other}]\n")
    async with serving(SETTING) as served:
        await stub(served).Apply(request)
        request.yaml = request.yaml.replace("name: a", "name: b")
        answer = await stub(served).Apply(request)
        assert answer.applied
        assert not served.core.state.outdated
        for partition in served.core.state.partitions.values():
            assert "root.b" in partition.queues


def details(error: Any) -> tuple[list[tuple[str, str]], list[str]]:
    changed: list[tuple[str, str]] = []
    advice: list[str] = []
    for one in rpc_status.from_call(error).details:
        failure, links = error_details_pb2.PreconditionFailure(), error_details_pb2.Help()
        if one.Unpack(failure):
            changed += [(each.subject, each.description) for each in failure.violations]
        elif one.Unpack(links):
            advice += [link.description for link in links.links]
    return changed, advice


async def test_a_shim_is_not_told_what_changed_in_partitions_of_others() -> None:
    async with serving(KNOWN) as served:
        await apply(served, "a")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await apply(served, "b", by="shim", base_revision=1)
        assert refused.value.code() is grpc.StatusCode.ABORTED
        assert details(refused.value)[0] == []


async def test_a_shim_is_told_who_applied_last_and_when_but_no_source() -> None:
    """The source names the manager or the file of another caller."""
    async with serving(KNOWN) as served:
        await register(served, "a")
        stale = apply(served, "b", by="rival", base_revision=1)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stale
        assert refused.value.code() is grpc.StatusCode.ABORTED
        said = str(refused.value.details())
        assert re.search(r"revision 2 by shim \(\d{4}-\d\d-\d\d [\d:]{8} UTC\) is in force", said)
        assert "registration" not in said
        assert "ask an operator" in details(refused.value)[1][0]


async def test_a_dry_run_is_refused_like_the_apply_that_follows() -> None:
    async with serving(KNOWN) as served:
        await apply(served, "a")
        stale = apply(served, "b", base_revision=1, dry_run=True)
        assert (await refusal(stale))[:2] == STALE
        dry = await apply(served, "b", base_revision=2, dry_run=True)
        assert (dry.applied, dry.revision_before, dry.revision) == (False, 2, 2)


async def test_without_a_base_the_last_one_wins() -> None:
    async with serving(KNOWN) as served:
        for leaf in "abc":
            assert (await apply(served, leaf)).applied
        assert (await get(served)).revision == 4


async def test_of_twenty_at_once_one_wins_per_base() -> None:
    async with serving(KNOWN) as served:
        for turn in range(3):
            base = await get(served)
            calls = [
                apply(
                    served,
                    f"t{turn}n{n}",
                    by="ada" if n % 2 else "bob",
                    base_revision=base.revision,
                )
                for n in range(20)
            ]
            answers = await asyncio.gather(*map(outcome, calls))
            assert sorted(answers) == [grpc.StatusCode.ABORTED.name] * 19 + ["applied"]
            assert (await get(served)).revision == base.revision + 1


async def outcome(call: Any) -> str:
    try:
        return "applied" if (await call).applied else "refused"
    except grpc.aio.AioRpcError as error:
        return error.code().name


async def test_an_apply_and_a_registration_at_once_leave_the_apply_in_force() -> None:
    async with serving(KNOWN) as served:
        await register(served, "old")
        for turn in range(5):
            base = await get(served)
            one = apply(served, f"new{turn}", base_revision=base.revision)
            answer, _ = await asyncio.gather(one, register(served, "old"))
            assert answer.applied
            now = await get(served)
            assert (now.digest, now.revision) == (answer.digest, base.revision + 1)


async def test_a_shim_that_comes_back_does_not_undo_an_operator() -> None:
    async with serving(KNOWN) as served:
        mine: Any = {"by": "shim", "rm_id": "rm", "source": "ConfigMap ns/map"}
        assert (await apply(served, "old", **mine)).applied
        await apply(served, "new")
        again = await apply(served, "old", **mine)
        assert not again.applied
        problem = again.problems[0]
        assert "revision 3 by ada (" in problem.message
        assert not (await apply(served, "old", dry_run=True, **mine)).applied
        await register(served, "old")
        assert (await get(served)).applied_by == "ada"
        assert (await apply(served, "other", **mine)).applied


async def test_who_may_apply() -> None:
    async with serving(KNOWN) as served:
        denied = grpc.StatusCode.PERMISSION_DENIED
        assert (await refusal(apply(served, "a", by="eve")))[0] is denied
        foreign = apply(served, "a", by="rival", rm_id="rm")
        assert (await refusal(foreign))[:2] == (denied, "NOT_YOURS")
        assert (await apply(served, "a", rm_id="rm")).applied, "an operator may for any"
        read = stub(served).Get(
            config_pb2.GetRequest(), metadata=(("authorization", "Bearer shim"),)
        )
        assert (await refusal(read))[0] is denied


@pytest.mark.parametrize("many", [0, 1, 30, 3_000])
def test_a_refusal_fits_into_the_headers(many: int) -> None:
    changes = diff(made("a"), made("a", *(f"{n:04d}{'q' * 60}" for n in range(many))))
    revision = Revision(9, "f" * 64, "s" * 5_000, "\u00fc" * 900, 1)
    error: CallError = stale_configuration(revision, Base(3), changes)
    assert sent_bytes(error) <= 4_096
    (failure, _) = error.details
    assert isinstance(failure, error_details_pb2.PreconditionFailure)
    told = failure.violations
    assert len(told) == many or told[-1].description == f"{many - len(told) + 1} more changes"


def test_a_base_that_is_forgotten_is_said() -> None:
    error = stale_configuration(Revision(9), Base(3), None)
    (failure, _) = error.details
    assert "not kept here any more" in failure.violations[0].description  # type: ignore[attr-defined]


async def test_an_open_port_knows_revisions_too() -> None:
    async with serving(SETTING) as served:
        assert (await apply(served, "a", by="", base_revision=1)).revision == 2
        assert (await refusal(apply(served, "b", by="", base_revision=1)))[:2] == STALE
