"""The configuration in force after a start, for each combination of sources."""

import pytest

from server.model.revisions import Revision
from server.record.kept import Kept
from server.record.restored import File, Restored, restored

OLD, NEW, APPLIED = "1" * 64, "2" * 64, "3" * 64


def file(digest: str) -> File:
    return File("file q.yaml", f"text of {digest}", digest)


def kept(digest: str, file_digest: str = "") -> Kept:
    revision = Revision(7, digest, "apply f.yaml", "ada", 5, standing=False)
    return Kept(revision, f"text of {digest}", {"rm": OLD}, file_digest)


def chosen(given: File | None, before: Kept | None) -> Restored:
    found = restored(given, before)
    assert found is not None
    return found


def test_without_a_file_and_without_an_earlier_run_there_is_nothing() -> None:
    assert restored(None, None) is None


def test_a_file_alone_is_the_first_revision() -> None:
    found = chosen(file(OLD), None)
    assert found.is_file
    assert found.kept.revision == Revision(1, OLD, "file q.yaml")
    assert found.kept.file == OLD
    assert not found.note


@pytest.mark.parametrize("file_digest", ["", OLD])
def test_what_was_applied_survives_where_no_file_is_given(file_digest: str) -> None:
    before = kept(APPLIED, file_digest)
    assert chosen(None, before) == Restored(before, is_file=False)


def test_what_was_applied_survives_beside_a_file_that_is_the_same_as_before() -> None:
    before = kept(APPLIED, OLD)
    found = chosen(file(OLD), before)
    assert (found.kept, found.is_file) == (before, False)
    assert "revision 7 by ada (apply f.yaml) was applied after file q.yaml" in found.note


@pytest.mark.parametrize("file_digest", ["", OLD])
def test_a_file_that_is_new_or_changed_overrides_and_says_so(file_digest: str) -> None:
    found = chosen(file(NEW), kept(APPLIED, file_digest))
    assert found.is_file
    assert found.kept.revision == Revision(8, NEW, "file q.yaml")
    assert (found.kept.text, found.kept.file) == (f"text of {NEW}", NEW)
    assert found.kept.given == {"rm": OLD}, "what shims sent is remembered"
    assert "revision 8; before it, revision 7 by ada" in found.note


def test_a_file_with_what_was_applied_keeps_its_revision() -> None:
    found = chosen(file(APPLIED), kept(APPLIED, OLD))
    assert found.is_file
    assert found.kept == kept(APPLIED, APPLIED)
    assert not found.note
