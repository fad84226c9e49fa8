"""The command `partition move`: the move of a partition from one running group of cores to another group (design 7.9)."""

import time
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.text import Text

from evenhand.v1 import replication_pb2 as pb
from evenhand.v1 import replication_pb2_grpc
from evenhand_cli import table_changes, terminal
from evenhand_cli.connect import Core, asks_core
from evenhand_cli.core_table import CoreGroup, CoreTable, read_core_table
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.output import Form, Output, show
from evenhand_cli.spread_channel import SpreadChannel

LOOK_S: Final = 0.02
"""The seconds between two checks whether the new owner decides for the partition."""
LOOKS_MAX: Final = 3_000
"""The maximum number of checks whether the new owner decides. All these checks take about a minute."""
EXPORT_S: Final = 60.0
"""The longest time, in seconds, that the former owner may take to send its copy of the partition."""
_AGAIN: Final = "run the command again: it goes on where the move stands"


def _seconds() -> float:
    return time.monotonic()  # noqa: TID251 -- a measurement.


class _Group(NamedTuple):
    """A group of cores: its row of the new table, its core that decides, and the answer of this core about the move."""

    row: CoreGroup
    core: Core
    stub: Any
    found: pb.GetMoveResponse

    def ask(self, method: str, request: Any) -> Any:  # noqa: ANN401
        """Return the answer of the group's core. Raises Fault if the core does not answer or refuses."""
        return self.core.ask(getattr(self.stub, method), request)

    def look(self, name: str) -> "_Group":
        """Return the group with its core's present answer about the move of the partition."""
        return self._replace(found=self.ask("GetMove", pb.GetMoveRequest(partition=name)))


@asks_core
def move(
    core: Core,
    name: Annotated[str, typer.Argument(metavar="PARTITION", help="Partition to move.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="GROUP", help="Group of cores that decides for it then."),
    ],
    print_table: Annotated[
        bool,
        typer.Option(
            "--print-table",
            help="Print the new table, for a ConfigMap, and leave the file of --cores as it is.",
        ),
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Move a partition to another running group of cores, with everything that the core knows of the partition.

    Waiting times, back-offs, armed quota timers and open decisions go on. Nothing is placed in the partition while it moves.
    The command writes the new table to the file of --cores. If it is interrupted, run it again. To give up a move that the
    file does not have yet, move the partition to the group that owns it.

    Examples:
        evenhand partition move gpu --to b --cores cores.yaml
        evenhand partition move gpu --to b --cores cores.yaml --print-table

    """
    spread: object = core.channel
    known = name.lower()
    if not isinstance(spread, SpreadChannel):
        raise Fault(
            f"a partition moves between groups of cores, and {core.address} is one core",
            where="--core",
            advice="give the table of the groups with --cores FILE",
            code=ExitCode.USAGE,
        )
    names = [one.name for one in spread.table.groups]
    if to not in names:
        raise Fault(
            f"the table has no group `{to}`",
            where="--to",
            advice=f"name one of: {', '.join(names)}",
            code=ExitCode.USAGE,
        )
    paused = _Steps(core, spread, known, to).run(print_table=print_table)
    if print_table:
        terminal.say(_told(known, to, paused))
        return
    value = {"partition": known, "group": to, "paused_ms": paused}
    show(output, value, lambda _: Text(_told(known, to, paused), style="good"))


def _told(name: str, to: str, paused: int | None) -> str:
    if paused is None:
        return f"partition {name} belongs to cores {to}; there was nothing to move"
    return f"partition {name} belongs to cores {to} now; nothing was placed in it for {paused:,} ms"


class _Steps:
    """The steps of one move. Each step first checks whether an earlier run of the command has done it."""

    def __init__(self, core: Core, spread: SpreadChannel, name: str, to: str) -> None:
        self._core = core
        self._spread = spread
        self._name = name
        self._old = spread.table
        self._to = to

    def run(self, *, print_table: bool) -> int | None:
        """Move the partition. Return for how many milliseconds the partition was paused; None if there was nothing to do.

        Raises Fault if no group has the partition, if a core refuses or does not answer, if the cores and the file have
        different tables, or if another command is changing the file.
        """
        file = self._old.file
        try:
            with table_changes.alone(file):
                self._check_same()
                return self._run(print_table=print_table)
        except table_changes.BusyError as error:
            raise Fault(
                f"another `partition move` uses {file} now",
                where="--cores",
                advice="wait until it has ended, and run the command again",
            ) from error

    def _check_same(self) -> None:
        """Raise Fault if the file of the table has changed since the command began."""
        file = self._old.file
        if file is not None and read_core_table(file).groups != self._old.groups:
            raise Fault(
                f"{file} has changed since the command began",
                where="--cores",
                advice="run the command again: it begins with the new table",
            )

    def _run(self, *, print_table: bool) -> int | None:
        name = self._name
        is_written = self._old.owner(name).name == self._to
        new = self._old if is_written else table_changes.moved(self._old, name, self._to)
        target = self._group(new, self._to)
        if is_written and target.found.state == "leaving":
            self._give_up(target, new)
            return None
        source = self._source(new, target)
        if source is None:
            if target.found.state not in {"owned", "arrived"}:
                raise Fault(f"no group of cores has partition {name!r}", where="--cores")
            if not is_written:
                self._check_moved(target)
            self._write(new, print_table=print_table and not is_written)
            if target.found.state == "arrived":
                self._wait(target)
            return None
        began = _seconds()
        try:
            if not _is_taken(source, target):
                self._copy(source, target)
            self._write(new, print_table=print_table)
        except (Fault, KeyboardInterrupt):
            self._cancel(source, target)
            raise
        self._complete(source, target)
        self._wait(target)
        return round((_seconds() - began) * 1000)

    def _group(self, table: CoreTable, name: str) -> _Group:
        """Return a group with its core's answer about the move.

        Raises Fault if no core of the group answers, or if the core has no table.
        """
        row = next(one for one in table.groups if one.name == name)
        address, channel = self._spread.reached(row)
        core = replace(self._core, address=address, channel=channel)
        stub = replication_pb2_grpc.ReplicationServiceStub(channel)
        return _Group(row, core, stub, pb.GetMoveResponse()).look(self._name)

    def _group_if_there(self, table: CoreTable, name: str) -> _Group | None:
        """Return a group with its core's answer about the move.

        If the file already names the new owner and no core of this group answers, print this fact and return None.
        Raises Fault if the file does not name the new owner yet and no core of the group answers, or if its core has no
        table.
        """
        try:
            return self._group(table, name)
        except Fault as fault:
            if fault.code is not ExitCode.UNREACHABLE or table is not self._old:
                raise
            terminal.say(f"cores {name} were not asked: {fault.what}")
            return None

    def _source(self, new: CoreTable, target: _Group) -> _Group | None:
        """Return the group that decides for the partition until the move; None if only the target group has the partition.

        Raises Fault if the group that decides has another table than the file. Also raises Fault if the file names this
        group as the owner and none of its cores answers.
        """
        owner = self._old.owner(self._name).name
        for row in new.groups:
            if row.name == target.row.name or (new is not self._old and row.name != owner):
                continue
            one = self._group_if_there(new, row.name)
            if one is None:
                continue
            if new is self._old and (one.found.state, target.found.state) == ("arrived", "owned"):
                self._forget(one, target)
            if one.found.state not in {"owned", "leaving"}:
                continue
            if one.found.state == "leaving" and one.found.other != self._to:
                raise Fault(
                    f"partition {self._name} is being moved to cores {one.found.other}",
                    where="--to",
                    advice=f"give that move up first: `evenhand partition move {self._name} --to {row.name}`",
                )
            if one.found.revision != one.row.revision - 1:
                raise Fault(
                    f"cores {row.name} have revision {one.found.revision} of their group, the table has "
                    f"{one.row.revision - (self._old is not new)}",
                    where="--cores",
                    advice="give the table with which these cores run",
                )
            return one
        return None

    def _check_moved(self, target: _Group) -> None:
        """Raise Fault if an earlier move of the partition away from the target group was not completed."""
        found = target.found
        revision = found.revision if found.state == "owned" else found.next_revision
        if revision != target.row.revision:
            owner = self._old.owner(self._name).name
            raise Fault(
                f"the table gives partition {self._name} to cores {owner}, and cores {self._to} have it still",
                where="--cores",
                advice=f"end that move first: `evenhand partition move {self._name} --to {owner}`",
            )

    def _copy(self, source: _Group, target: _Group) -> None:
        """Stop the decisions of the former owner about the partition, and send the new owner a copy of the partition.

        Raises Fault if a core of these groups refuses or does not answer.
        """
        parts = self._exported(source)
        for at, part in enumerate(parts):
            request = pb.ImportPartitionRequest(
                partition=self._name,
                former=source.row.name,
                revision=target.row.revision,
                number=at,
                part=part,
                last=at == len(parts) - 1,
                layout=source.found.layout,
            )
            target.ask("ImportPartition", request)

    def _exported(self, source: _Group) -> list[bytes]:
        request = pb.ExportPartitionRequest(
            partition=self._name, to=self._to, revision=source.found.revision
        )
        answers = source.core.follow(source.stub.ExportPartition, request, EXPORT_S)
        return [one.part for one in answers]

    def _write(self, new: CoreTable, *, print_table: bool) -> None:
        """Write the new table to the file, or print the new table.

        After this step the command does not give up the move any more. Raises Fault if the file has changed or cannot
        be written.
        """
        if print_table:
            typer.echo(table_changes.text_of(new), nl=False)
            return
        file = self._old.file
        if new is self._old or file is None:
            return
        self._check_same()
        try:
            table_changes.write(file, new)
        except OSError as error:
            raise Fault(
                f"cannot write {file}: {error.strerror}",
                where="--cores",
                advice="make the file writable, or add --print-table; " + _AGAIN,
            ) from error

    def _complete(self, source: _Group, target: _Group) -> None:
        """Let the former owner drop the partition. Raises Fault if the former owner's core refuses or does not answer."""
        if source.found.state != "leaving" and target.found.state == "owned":
            self._exported(source)  # The former owner has to stop first; no new copy is needed.
        request = pb.CompleteMoveRequest(
            partition=self._name,
            to=self._to,
            revision=source.row.revision,
            to_revision=target.row.revision,
        )
        source.ask("CompleteMove", request)

    def _wait(self, target: _Group) -> None:
        """Wait until the new owner decides. Raises Fault if no manager reports the partition to the new owner."""
        for _ in range(LOOKS_MAX):
            found = target.look(self._name).found
            if found.state == "owned" and found.synced:
                return
            time.sleep(LOOK_S)
        raise Fault(
            f"no resource manager has reported partition {self._name} to cores {self._to} yet",
            where=target.core.address,
            advice="start a shim with the new table; `evenhand partitions --cores FILE` shows when it has reported",
        )

    def _give_up(self, holder: _Group, table: CoreTable) -> None:
        """Give up a move that is not in the file yet. Raises Fault if the new owner has taken over the partition already."""
        other = None
        if any(one.name == holder.found.other for one in table.groups):
            with suppress(Fault):
                other = self._group(table, holder.found.other)
        if other is not None and other.found.state == "owned":
            raise Fault(
                f"cores {other.row.name} have taken partition {self._name} already",
                where="--to",
                advice=f"end that move first: `evenhand partition move {self._name} --to {other.row.name}`",
            )
        holder.ask("CancelMove", pb.CancelMoveRequest(partition=self._name))
        if other is not None:
            self._cancel(other)
        terminal.say(f"the move to cores {holder.found.other} was given up")

    def _forget(self, one: _Group, owner: _Group) -> None:
        """Let a group delete its copy of a partition, because the owner did not complete the move in time."""
        if one.found.other == owner.row.name:
            one.ask("CancelMove", pb.CancelMoveRequest(partition=self._name))
            terminal.say(f"the move to cores {one.row.name} was given up")

    def _cancel(self, *groups: _Group) -> None:
        for one in groups:
            with suppress(Fault):
                one.ask("CancelMove", pb.CancelMoveRequest(partition=self._name))


partition = typer.Typer(
    help="Move partitions between groups of cores.", no_args_is_help=True, add_completion=False
)
partition.command("move")(move)


@partition.callback()
def _only_group() -> None:
    """Make `move` a subcommand of `partition`, although the group has no other command."""


def _is_taken(source: _Group, target: _Group) -> bool:
    """Return whether the new owner already owns the partition, or has a copy of it while the former owner has stopped."""
    if target.found.state == "owned":
        return True
    has_copy = target.found.next_revision == target.row.revision
    return has_copy and (source.found.state, source.found.other) == ("leaving", target.row.name)
