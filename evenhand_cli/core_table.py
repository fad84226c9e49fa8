"""The table of cores: which group of cores decides for which partitions, and where its cores listen (design 7.6).

    cores:
    - {name: a, addresses: [core-1:50051, core-2:50051], partitions: [default], revision: 4}
    - {name: b, addresses: [core-3:50051], partitions: [gpu], revision: 2}

The first group of the table also decides for all partitions that no group names.
"""

from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evenhand_cli.faults import Fault
from evenhand_cli.files import read_text
from server.model.assignment import Assignment
from server.model.quota import DEFAULT_PARTITION

OPTION: Final = "--cores"
GROUPS_MAX: Final = 64
_ADVICE: Final = "write `cores:`, a list of groups with name, addresses and partitions"


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    addresses: list[str] = Field(min_length=1, max_length=8)
    partitions: list[str] = Field(default=[], max_length=10_000)
    revision: int = Field(default=0, ge=0, lt=1 << 53, strict=True)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cores: list[_Row] = Field(min_length=1, max_length=GROUPS_MAX)


class CoreGroup(NamedTuple):
    """A group of cores: one core decides for the partitions of the group, and the other cores follow it."""

    name: str
    addresses: str
    """The addresses of the group's cores, HOST:PORT each, separated by commas."""
    partitions: tuple[str, ...]
    """The partitions that the table names for the group."""
    revision: int = 0
    """A number that is raised at each change of the group's partitions. A core with an older number does not decide."""


class CoreTable(NamedTuple):
    """The groups of cores, in the order of the table."""

    groups: tuple[CoreGroup, ...]
    file: Path | None = None
    """The file from which the table was read."""

    @property
    def owners(self) -> dict[str, str]:
        """For each partition that the table names: the name of the group that decides for it."""
        return {each: one.name for one in self.groups for each in one.partitions}

    def owner(self, partition: str) -> CoreGroup:
        """Return the group that decides for a partition. An empty partition name means the default partition."""
        known = partition.lower() or DEFAULT_PARTITION
        return next((one for one in self.groups if known in one.partitions), self.groups[0])

    def assignment(self, group: str) -> Assignment:
        """Return the table as the cores of a group use it: the group of each partition, and the revision of their own group.

        Raises Fault for a group that the table does not have.
        """
        names = [one.name for one in self.groups]
        if group not in names:
            known = ", ".join(names)
            raise Fault(
                f"the table has no group `{group}`" if group else "--cores needs --group",
                where="--group",
                advice=f"name the group of this core, one of: {known}",
            )
        revision = self.groups[names.index(group)].revision
        return Assignment(group, self.owners, names[0], revision)


def read_core_table(file: Path) -> CoreTable:
    """Return the table in a file.

    Raises Fault if the file cannot be read, has another form, or names a group, partition or address twice.
    """
    text = read_text(file, OPTION)
    try:
        table = _Table.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise Fault(f"{file} is not YAML: {error}", where=OPTION, advice=_ADVICE) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise Fault(f"{file}: {place}: {first['msg']}", where=OPTION, advice=_ADVICE) from error
    groups = tuple(
        CoreGroup(
            one.name,
            ",".join(one.addresses),
            tuple(each.lower() for each in one.partitions),
            one.revision,
        )
        for one in table.cores
    )
    _check_once(file, "group", [one.name for one in groups])
    _check_once(file, "partition", [each for one in groups for each in one.partitions])
    _check_once(file, "address", [each for one in table.cores for each in one.addresses])
    return CoreTable(groups, file)


def _check_once(file: Path, kind: str, names: list[str]) -> None:
    """Raise Fault if a name is in the list more than once."""
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise Fault(
            f"{file}: {kind} `{twice}` is named more than once",
            where=OPTION,
            advice="each partition has one group, and each group its own name and addresses",
        )
