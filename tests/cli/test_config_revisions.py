"""`config show` and `config apply`: the revision from which a file was made, and the message for an outdated one."""

from pathlib import Path

import grpc
import pytest

from evenhand.v1 import config_pb2, inspect_pb2
from evenhand_cli.config_maps import read_queues
from server.config import Change
from server.config.header import header, without_header
from server.model.revisions import ANY_BASE, Base, Revision
from server.rpc.errors import stale_configuration
from tests.cli.fake import Answer, Failure, FakeCore, running
from tests.cli.processes import address_of
from tests.cli.processes import running as core_process
from tests.cli.run import Ended, evenhand
from tests.core.test_revisions import text as tree

QUEUES = "partitions: [{name: default, queues: [{name: root}]}]\n"
DIGEST = "d" * 64
FIRST = f"# revision 7 {DIGEST}\n"
NOW = config_pb2.GetResponse(
    yaml=QUEUES,
    source="apply q.yaml",
    digest=DIGEST,
    applied_at_ms=1,
    revision=7,
    applied_by="ada",
    not_kept="no disk",
)
SERVER = inspect_pb2.ServerInfoResponse(config_revision=7, config_digest=DIGEST)
CHANGE = config_pb2.ConfigChange(kind="added", subject="queue root.a")
DONE = config_pb2.ApplyResponse(
    applied=True, digest="e" * 64, revision=8, revision_before=7, changes=[CHANGE]
)


def config(
    *words: str, text: str = QUEUES, tmp_path: Path, **answers: Answer
) -> tuple[Ended, FakeCore]:
    file = tmp_path / "queues.yaml"
    file.write_text(text)
    prepared: dict[str, Answer] = {"Get": NOW, "ServerInfo": SERVER, "Apply": DONE, **answers}
    with running(FakeCore(**prepared)) as core:
        given = [str(file) if word == "FILE" else word for word in words]
        return evenhand("config", *given, "--core", core.address), core


def applied(core: FakeCore) -> config_pb2.ApplyRequest:
    (request,) = [one for one in core.requests if isinstance(one, config_pb2.ApplyRequest)]
    return request


def base(core: FakeCore) -> Base:
    request = applied(core)
    return Base(request.base_revision, request.base_digest)


def test_show_begins_with_the_revision(tmp_path: Path) -> None:
    ended, _ = config("show", tmp_path=tmp_path)
    assert ended.out == FIRST + QUEUES
    assert "revision 7 by ada from apply q.yaml" in ended.err
    assert "not kept: no disk" in ended.err


def test_show_as_json_keeps_everything(tmp_path: Path) -> None:
    ended, _ = config("show", "-o", "json", tmp_path=tmp_path)
    value = ended.value()
    assert (value["yaml"], value["revision"], value["applied_by"]) == (QUEUES, 7, "ada")
    assert value["not_kept"] == "no disk"


def test_what_show_wrote_is_applied_from_its_revision(tmp_path: Path) -> None:
    ended, core = config("apply", "FILE", text=FIRST + QUEUES, tmp_path=tmp_path)
    assert ended.code == 0, ended.err
    assert base(core) == Base(7, DIGEST)
    assert applied(core).yaml == QUEUES
    assert not [one for one in core.requests if isinstance(one, config_pb2.GetRequest)]
    assert "applied: revision 8, before it 7" in ended.out
    assert "before you change it again" in ended.out


def test_another_file_is_applied_from_what_is_in_force(tmp_path: Path) -> None:
    ended, core = config("apply", "FILE", tmp_path=tmp_path)
    assert ended.code == 0, ended.err
    assert base(core) == Base(7, DIGEST)
    assert "before you change it again" not in ended.out


@pytest.mark.parametrize("first", ["", FIRST])
def test_force_asks_for_no_revision(tmp_path: Path, first: str) -> None:
    ended, core = config("apply", "FILE", "--force", text=first + QUEUES, tmp_path=tmp_path)
    assert ended.code == 0, ended.err
    assert base(core) == ANY_BASE


def test_a_core_without_revisions_is_applied_to_as_before(tmp_path: Path) -> None:
    old = config_pb2.GetResponse(yaml=QUEUES, digest=DIGEST)
    answer = config_pb2.ApplyResponse(applied=True, digest=DIGEST)
    server = inspect_pb2.ServerInfoResponse(config_digest=DIGEST)
    ended, core = config("apply", "FILE", tmp_path=tmp_path, ServerInfo=server, Apply=answer)
    assert ended.code == 0, ended.err
    assert base(core) == ANY_BASE
    shown, _ = config("show", tmp_path=tmp_path, Get=old)
    assert shown.out == QUEUES


def test_a_stale_file_says_who_changed_what_and_what_to_do(tmp_path: Path) -> None:
    changes = [
        Change("added", "queue root.a"),
        Change("changed", "queue root.b", "max.vcore", "1", "2"),
    ]
    error = stale_configuration(
        Revision(9, DIGEST, "apply bob.yaml", "bob", 1_700_000_000_000), Base(7), changes
    )
    failed = Failure(error.code, error.message, error.details)
    ended, _ = config("apply", "FILE", text=FIRST + QUEUES, tmp_path=tmp_path, Apply=failed)
    assert error.code is grpc.StatusCode.ABORTED
    assert ended.code == 1
    assert ended.out == ""
    said = " ".join(ended.err.split())
    assert "made from revision 7" in said
    assert "revision 9 by bob (apply bob.yaml)" in said
    assert "2023-11-14 22:13:20 UTC" in said
    assert "queue root.a: added" in said
    assert "queue root.b: max.vcore 1 -> 2" in said
    assert "evenhand config show" in said


def test_it_says_whether_the_configuration_is_kept(tmp_path: Path) -> None:
    ended, _ = config("apply", "FILE", tmp_path=tmp_path)
    assert "A core that is started again has it" in ended.out
    lost = config_pb2.ApplyResponse()
    lost.CopyFrom(DONE)
    lost.not_kept = "the disk is full"
    ended, _ = config("apply", "FILE", tmp_path=tmp_path, Apply=lost)
    assert "not kept: the disk is full" in ended.out


def test_problems_of_a_file_with_a_revision_have_the_lines_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(FIRST + "partitions: 7\n")
    assert read_queues(file, "FILE").line == 2
    ended = evenhand("config", "check", str(file))
    assert f"{file}:2: error" in ended.out.replace("\n", "")


@pytest.mark.parametrize("one", [Base(7, DIGEST), Base(1)])
def test_the_first_line_is_read_back(one: Base) -> None:
    assert without_header(header(one) + QUEUES) == (one, QUEUES)
    assert without_header(header(one).replace("\n", "\r\n") + QUEUES) == (one, QUEUES)
    assert without_header(header(one).rstrip()) == (one, "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        QUEUES,
        "# revision seven\n",
        f"# revision 7 {DIGEST}0\n",
        "# revision 7 of my queues\n",
        QUEUES + FIRST,
    ],
)
def test_any_other_text_has_no_revision(text: str) -> None:
    assert without_header(text) == (ANY_BASE, text)


def test_two_operators_who_begin_with_one_revision(tmp_path: Path) -> None:
    """The second is refused, makes the change again in what the first one left, and both queues are there."""
    with core_process(["serve", "--listen", "127.0.0.1:0"], tmp_path / "log") as process:
        address = ("--core", address_of(process, tmp_path / "log"))
        first = tmp_path / "first.yaml"
        first.write_text(tree("common"))
        assert evenhand("config", "apply", str(first), *address).code == 0
        ada, bob = tmp_path / "ada.yaml", tmp_path / "bob.yaml"
        shown = evenhand("config", "show", *address).out
        ada.write_text(shown.replace("{name: common}", "{name: common}, {name: ada}"))
        bob.write_text(shown.replace("{name: common}", "{name: common}, {name: bob}"))
        assert evenhand("config", "apply", str(ada), *address).code == 0
        refused = evenhand("config", "apply", str(bob), *address)
        assert refused.code == 1
        assert "queue root.ada: added" in refused.err
        again = evenhand("config", "show", *address).out
        assert "ada" in again
        assert "bob" not in again
        bob.write_text(again.replace("{name: common}", "{name: common}, {name: bob}"))
        assert evenhand("config", "apply", str(bob), *address).code == 0
        last = evenhand("config", "show", *address).out
        assert last.endswith(f"\n{tree('common', 'bob', 'ada')}")


def test_show_breaks_no_line_however_narrow_the_terminal() -> None:
    wide = config_pb2.GetResponse()
    wide.CopyFrom(NOW)
    wide.revision, wide.yaml = 123_456, f"# {'x' * 200}\tends\n{QUEUES}"
    with running(FakeCore(Get=wide)) as core:
        ended = evenhand("config", "show", "--core", core.address, width=40)
    assert ended.out == f"# revision 123456 {DIGEST}\n{wide.yaml}"
