"""The command `partition move`: what it prints and writes, and what it refuses (design 7.9)."""

from pathlib import Path

import pytest

from evenhand_cli import core_table, table_changes
from evenhand_cli.core_table import CoreTable, read_core_table
from tests.cli.processes import until
from tests.cli.run import evenhand
from tests.cli.test_spread import counts, table, two_groups

TABLE = """\
# Which cores decide.
cores:
# The first one.
- {name: a, addresses: [x:1, y:1], partitions: [default, gpu], revision: 4}
- name: b
  addresses: [z:1]
- {name: c, addresses: [w:1], partitions: [night], revision: 7}
"""


def test_a_partition_moves_by_a_table_that_is_printed_and_back(tmp_path: Path) -> None:
    with two_groups(tmp_path) as spread:
        until(lambda: counts(spread.addresses) == [3, 2])
        move = ("partition", "move", "GPU", "--cores", str(spread.table))
        before = spread.table.read_text()
        moved = evenhand(*move, "--to", "a", "--print-table")
        assert (moved.code, spread.table.read_text()) == (0, before), moved.err
        assert "partition gpu belongs to cores a now; nothing was placed in it for" in moved.err
        assert counts(spread.addresses) == [5, 0]
        stale = evenhand(*move, "--to", "a", "--print-table")
        assert (stale.code, stale.out) == (0, moved.out)
        assert "there was nothing to move" in stale.err
        spread.table.write_text(moved.out)
        assert [one.revision for one in read_core_table(spread.table).groups] == [1, 1]
        back = evenhand(*move, "--to", "b", "-o", "json").value()
        assert (back["partition"], back["group"], back["paused_ms"] > 0) == ("gpu", "b", True)
        assert counts(spread.addresses) == [3, 2]
        with table_changes.alone(spread.table):
            busy = evenhand(*move, "--to", "a")
        assert (busy.code, "another `partition move` uses" in busy.err) == (1, True), busy.err
        spread.table.write_text(before)
        older = evenhand(*move, "--to", "a")
        assert older.code == 1
        assert "cores b have revision 2 of their group, the table has 0" in older.err
        for to in "ab":  # the first group has what none names
            unknown = evenhand(*move[:2], "none", "--to", to, *move[3:])
            assert unknown.code == 1
            assert "no group of cores has partition 'none'" in unknown.err


def test_wrong_moves_are_refused(tmp_path: Path) -> None:
    cores = ("--cores", str(table(tmp_path / "cores.yaml")))
    for words, code, says in (
        (("--to", "b"), 2, "a partition moves between groups of cores"),
        (("--to", "c", *cores), 2, "the table has no group `c`"),
        (("--to", "a", *cores), 3, "cannot reach the core"),
        (cores, 2, "--to"),
    ):
        ended = evenhand("partition", "move", "gpu", *words)
        assert (ended.code, says in ended.err) == (code, True), ended.err


def test_the_new_table_names_the_partition_once_and_raises_both_revisions(tmp_path: Path) -> None:
    file = tmp_path / "cores.yaml"
    file.write_text(TABLE)
    file.chmod(0o664)  # the mask of this process would take a bit away
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    new = table_changes.moved(read_core_table(link), "gpu", "b")
    assert [one.partitions for one in new.groups] == [("default",), ("gpu",), ("night",)]
    assert [one.revision for one in new.groups] == [5, 1, 7]
    table_changes.write(link, new)
    assert read_core_table(file).groups == new.groups
    assert file.read_text().startswith("# Which cores decide.\ncores:\n- {name: a, addresses: ")
    assert (link.is_symlink(), file.stat().st_mode & 0o777) == (True, 0o664)
    unnamed = table_changes.moved(new, "web", "c")  # the first group has what none names
    assert [one.revision for one in unnamed.groups] == [6, 1, 8]
    assert unnamed.groups[2].partitions == ("night", "web")


def test_one_command_at_a_time_changes_a_table(tmp_path: Path) -> None:
    file = tmp_path / "cores.yaml"
    file.write_text(TABLE)
    with (
        table_changes.alone(None),
        table_changes.alone(file),
        pytest.raises(table_changes.BusyError),
        table_changes.alone(file),
    ):
        raise AssertionError("two commands at once")
    with table_changes.alone(file):
        assert file.read_text() == TABLE


def test_a_table_that_has_changed_since_the_command_read_it_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this check the command would take the other change back."""
    file = tmp_path / "cores.yaml"
    file.write_text(TABLE)
    changed = TABLE.replace("revision: 7", "revision: 8")

    def read(place: Path) -> CoreTable:
        found = read_core_table(place)
        place.write_text(changed)
        return found

    monkeypatch.setattr(core_table, "read_core_table", read)
    ended = evenhand("partition", "move", "gpu", "--to", "b", "--cores", str(file))
    assert (ended.code, "has changed since the command began" in ended.err) == (1, True), ended.err
    assert file.read_text() == changed


def test_a_file_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    file = tmp_path / "cores.yaml"
    file.write_text(TABLE)
    (tmp_path / "cores.yaml.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        table_changes.write(file, read_core_table(file))
    assert file.read_text() == TABLE
