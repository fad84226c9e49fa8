"""The directory of an embedded cluster: its manifests are applied at the start and whenever they change.

Only changes of the files are applied. A change of an object by a command stays until the manifest of the object
changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shim_client.cluster import ConflictError, MissingError, ObjectRef, WatchEvent
from shim_client.embedded import requests
from shim_client.embedded.admission import InvalidError
from shim_client.embedded.checks import SETTINGS_LATER, has_settings
from shim_client.embedded.cluster import EmbeddedCluster
from shim_client.embedded.keeping import StateFile
from shim_client.embedded.loading import (
    KINDS_IN_ORDER,
    QUEUES_FILE,
    BadFileError,
    FileObject,
    Manifests,
    manifest_files,
    read_good_files,
)
from shim_client.embedded.saved import Id, Saved, change_record, digest, id_of, manifest_record

LOOK_SECONDS = 0.5
"""Seconds between two checks whether the files have changed."""

Say = Callable[[str], None]
Configure = Callable[[str, ObjectRef], Awaitable[None]]
"""A function that sends a queue configuration to the core.

Its second argument is the reference on which events about the configuration are recorded.
"""
Sleep = Callable[[float], Awaitable[None]]
Stamps = Mapping[str, tuple[int, int, int]]
"""Time of change, size and inode of each file."""


QUEUES = ObjectRef("File", "", QUEUES_FILE)
"""The reference of the file `queues.yaml`, on which events about the queue configuration are recorded."""
QUEUES_LOST = "it holds no queues any more; the queues that it held stay in force"


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes between the former and the present content of the files."""

    changed: tuple[FileObject, ...] = ()
    removed: tuple[Id, ...] = ()
    doubled: tuple[FileObject, ...] = ()
    """Manifests of objects that an earlier file, or an earlier place in the same file, describes already."""


@dataclass(slots=True)
class Report:
    """The result of applying the files: the number of created, changed and deleted objects, and the problems."""

    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    """Names of changed ConfigMaps that the shim reads."""

    def count(self, word: str) -> None:
        """Count one more object for a kind of change: `word` names the change, such as `created`."""
        self.counts[word] = self.counts.get(word, 0) + 1

    def text(self) -> str:
        """Return the counts in words, such as `1 created, 2 deleted`; empty when nothing was done."""
        return ", ".join(f"{count} {word}" for word, count in self.counts.items())


def difference(
    known: Mapping[Id, str], found: Iterable[FileObject], kept: Iterable[Id] = ()
) -> Difference:
    """Return the changes that have to be made to the cluster because its files have changed.

    `known` has the digest of the manifest that was last carried out for each object. `found` are the objects in the
    files that can be read. `kept` are the objects of files that cannot be read at present; these objects stay as they
    are.
    """
    seen: dict[Id, None] = {}
    changed, doubled = [], []
    for one in found:
        of = _id(one)
        if of in seen:
            doubled.append(one)
            continue
        seen[of] = None
        if known.get(of) != digest(one.item):
            changed.append(one)
    stay = seen.keys() | set(kept)
    gone = sorted(
        (of for of in known if of not in stay), key=lambda of: -KINDS_IN_ORDER.index(of[0])
    )
    return Difference(tuple(changed), tuple(gone), tuple(doubled))


class Folder:
    """The manifests of one cluster directory, and the state file of the cluster if it has one."""

    def __init__(
        self, directory: Path, cluster: EmbeddedCluster, state: StateFile | None = None
    ) -> None:
        self.directory = directory
        self._cluster = cluster
        self._state = state
        self._digests: dict[Id, str] = {}
        self._ids: dict[str, list[Id]] = {}
        """The objects of each file, as they were when the file was last readable."""
        self._queues = ""
        self._queues_lost = False
        """Whether the file of the queue configuration is gone or empty."""
        self._stamps: Stamps = {}
        self._seen: Stamps = {}
        self._broken: dict[str, str] = {}

    def start(self, manifests: Manifests, saved: Saved) -> Report:
        """Restore the saved state, save every change from now on, and apply the differences between the files and the saved state.

        The result has the numbers of changed objects. Raises NoStateError if the state cannot be written.
        """
        self._stamps = self._seen = stamps(self.directory)
        self._cluster.restore(saved)
        self._digests = dict(saved.manifests)
        if self._state is not None:
            self._state.rewrite(self._saved())
            self._cluster.store.noticed.append(self._keep)
        self._queues = manifests.queues
        return self._carry_out(manifests)

    async def follow(
        self, say: Say, configure: Configure | None, sleep: Sleep = asyncio.sleep
    ) -> None:
        """Apply changes of the files until cancelled, and pass a text about them to `say`. A missing directory changes nothing.

        A changed queue configuration is passed to `configure`; without that function, the configuration is read at
        the next start.
        """
        while True:
            await sleep(LOOK_SECONDS)
            if await self.look(say):
                await self._configure(say, configure)

    async def _configure(self, say: Say, configure: Configure | None) -> None:
        file = self.directory / QUEUES_FILE
        if configure is None:
            say(f"{file} has changed: it counts when the shim starts the next time")
            return
        say(f"{file} has changed: sent to the core")
        await configure(self._queues, QUEUES)

    async def look(self, say: Say) -> bool:
        """Apply the changes of the files, once the files are complete; return whether the queue configuration has changed."""
        if not self._is_due():
            return False
        # Reading large files takes seconds; the cluster continues to work meanwhile.
        return self._take(await asyncio.to_thread(self._read), say)

    def _is_due(self) -> bool:
        """Return whether files have changed and the change is complete: two checks in succession found equal files."""
        now = stamps(self.directory)
        complete, self._seen = now == self._seen, now
        if not complete or now == self._stamps:
            return False
        self._stamps = now
        return True

    def _read(self) -> Manifests | BadFileError:
        """Return the manifests in the files.

        Return an error when there is no directory.
        """
        try:
            return read_good_files(self.directory)
        except BadFileError as bad:
            return bad

    def _take(self, manifests: Manifests | BadFileError, say: Say) -> bool:
        """Apply the present content of the files, and return whether the text of queues.yaml has changed."""
        if isinstance(manifests, BadFileError):
            name = str(self.directory)
            self._complain(name, f"{manifests}; the cluster stays as it is", say)
            return False
        report = self._carry_out(manifests, say)
        if done := report.text():
            say(f"{self.directory}: {done}")
        for problem in report.problems:
            say(f"{self.directory}: {problem}")
        for name in report.settings:
            say(f"{self.directory}: ConfigMap {name}: {SETTINGS_LATER}")
        return self._take_queues(manifests, say)

    def _take_queues(self, manifests: Manifests, say: Say) -> bool:
        """Return whether the text of QUEUES_FILE has changed. A text that is gone is not a change, but causes a warning."""
        if QUEUES_FILE in manifests.broken:
            return False
        lost, self._queues_lost = self._queues_lost, not manifests.queues.strip()
        if self._queues_lost:
            if self._queues and not lost:
                self._cluster.complain(QUEUES, "ConfigurationNotApplied", QUEUES_LOST)
                say(f"{self.directory / QUEUES_FILE}: {QUEUES_LOST}")
            return False
        changed, self._queues = manifests.queues != self._queues, manifests.queues
        return changed

    def _carry_out(self, manifests: Manifests, say: Say | None = None) -> Report:
        for name, bad in manifests.broken.items():
            if say is not None and self._broken.get(name) != str(bad):
                self._complain(name, f"{bad}; its objects stay as they are", say)
        self._broken = {name: str(bad) for name, bad in manifests.broken.items()}
        kept = [of for name in self._broken for of in self._ids.get(name, ())]
        self._remember(manifests)
        report = Report()
        found = difference(self._digests, manifests.objects, kept)
        for of in found.removed:
            self._remove(of, report)
        for one in found.changed:
            self._apply(one, report)
        for one in found.doubled:
            self._refuse(one, f"{one.kind} {one.item['metadata']['name']} exists already", report)
        self._cluster.step()
        return report

    def _remember(self, manifests: Manifests) -> None:
        ids: dict[str, list[Id]] = {
            name: known for name, known in self._ids.items() if name in manifests.broken
        }
        for one in manifests.objects:
            ids.setdefault(one.place, []).append(_id(one))
        self._ids = ids

    def _apply(self, one: FileObject, report: Report) -> None:
        of = _id(one)
        try:
            word = requests.apply(self._cluster, one.item)
        except (InvalidError, ConflictError) as bad:
            self._refuse(one, str(bad), report)
            return
        self._note(of, digest(one.item))
        if word != requests.UNCHANGED:
            report.count(word)
            if has_settings(one.item):
                report.settings.append(one.item["metadata"]["name"])

    def _remove(self, of: Id, report: Report) -> None:
        try:
            requests.delete(self._cluster, of)
            report.count("deleted")
        except MissingError:
            pass  # A command deleted the object before.
        except ConflictError as bad:
            report.problems.append(str(bad))
        self._note(of, "")

    def _refuse(self, one: FileObject, why: str, report: Report) -> None:
        message = f"{one.place}: {why}"
        self._cluster.complain(one.ref(), "Refused", message)
        report.problems.append(f"refused: {message}")

    def _complain(self, name: str, message: str, say: Say) -> None:
        self._cluster.complain(ObjectRef("File", "", name), "FileNotReadable", message)
        say(f"{self.directory}: {message}")

    def _note(self, of: Id, made: str) -> None:
        if made:
            self._digests[of] = made
        else:
            self._digests.pop(of, None)
        if self._state is not None:
            self._state.append(manifest_record(of, made), self._saved)

    def _keep(self, event: WatchEvent) -> None:
        assert self._state is not None
        whole = not self._state.failure
        self._state.append(change_record(event, self._cluster.serials()), self._saved)
        if whole and self._state.failure:
            self._cluster.complain(
                ObjectRef("File", "", str(self._state.path)),
                "StateNotSaved",
                f"{self._state.failure}; changes from now on are lost when the shim ends",
            )

    def _saved(self) -> Saved:
        objects = {id_of(item): item for item in self._cluster.store.everything()}
        owner = str(self.directory.resolve())
        return Saved(objects, dict(self._digests), self._cluster.serials(), owner)


def stamps(directory: Path) -> Stamps:
    """Return time of change, size and inode of each file that is read.

    A file that vanishes meanwhile is left out.
    """
    found = {}
    for path in manifest_files(directory):
        try:
            status = path.stat()
        except OSError:
            continue
        found[str(path)] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return found


def _id(one: FileObject) -> Id:
    ref = one.ref()
    return ref.kind, ref.namespace, ref.name
