"""The command `partition move`: what it prints and writes, and what it refuses (design 7.9)."""

from pathlib import Path

import pytest

from evenhand_cli import table_changes
from evenhand_cli.core_table import read_core_table
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
        spread.table.write_text(before)
        older = evenhand(*move, "--to", "a")
        assert older.code == 1
        assert "cores b have revision 2 of their group, the table has 0" in older.err
        unknown = evenhand("partition", "move", "none", "--to", "b", "--cores", str(spread.table))
        assert (unknown.code, "no group of cores has partition 'none'" in unknown.err) == (1, True)


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
    file.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    new = table_changes.moved(read_core_table(link), "gpu", "b")
    assert [one.partitions for one in new.groups] == [("default",), ("gpu",), ("night",)]
    assert [one.revision for one in new.groups] == [5, 1, 7]
    table_changes.write(link, new)
    assert read_core_table(file).groups == new.groups
    assert file.read_text().startswith("# Which cores decide.\ncores:\n- {name: a, addresses: ")
    assert (link.is_symlink(), file.stat().st_mode & 0o777) == (True, 0o640)
    unnamed = table_changes.moved(new, "web", "c")  # the first group has what none names
    assert [one.revision for one in unnamed.groups] == [6, 1, 8]
    assert unnamed.groups[2].partitions == ("night", "web")


def test_a_file_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    file = tmp_path / "cores.yaml"
    file.write_text(TABLE)
    (tmp_path / "cores.yaml.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        table_changes.write(file, read_core_table(file))
    assert file.read_text() == TABLE
