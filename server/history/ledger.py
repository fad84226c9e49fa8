"""The ledger: the state of the writing process. The ledger turns rows of events and decisions into rows of tables.

The ledger writes nothing itself. `pending` has the whole rows that are to be written, by table and key. If a row changes several
times before it is written, it is written once. The ledger reads no clock, so that equal rows in equal order give equal pending
rows.
"""

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Table

from server.history import schema
from server.history.decided import Decisions
from server.history.pods import BRIEF_MS, NOT_TRIED, Pod, Pods, Wait
from server.history.rows import Frame, Row
from server.history.rows_fast import Run, unpacked
from server.history.samples import Picture
from server.history.samples import Pod as Pictured
from server.history.series import Series
from server.history.starts import Starts
from server.history.tap import InForce, Lost
from server.model.decisions import AskStateChanged, Placed, Released
from server.model.events import AllocationAdded, AskAdded, ReleaseRequested
from server.model.reasons import Code

Pending = dict[Table, dict[object, dict[str, Any]]]
Tags = tuple[bytes, ...]

COUNTER_BITS: Final = 40
"""The number of low bits of an identifier that hold the counter. The bits above hold the number of the core's run."""

_FAILED: Final = "SCHEDULING_FAILED_ON_RM"
_ORDERS: Final[Mapping[str, str]] = {
    "PREEMPTED_BY_SCHEDULER": "preempted",
    "PLACEHOLDER_REPLACED": "replaced",
    "TIMEOUT": "timeout",
}
"""The word that is recorded for the end of an allocation whose release the core ordered, by the termination type of the order.

The pod runs until the shim confirms its end.
"""


class Ledger:
    """The state of the writing process: pods, applications, decisions and usage, and the rows that are still to be written.

    ``name_of`` returns the name of a pod from its tags, "" if the tags have no name.
    """

    def __init__(self, run: int, name_of: Callable[[Tags], str], sample_ms: int) -> None:
        self._name_of = name_of
        self._counter = run << COUNTER_BITS
        self.pending: Pending = {}
        self.pods = Pods()
        self.applications: dict[tuple[str, str], tuple[str, str]] = {}
        """The queue and the user of each application, by partition and id."""
        self.decisions = Decisions(self.put, self.next_number, self.pods)
        self.series = Series(self.put, self.next_number, sample_ms)
        self.starts = Starts(self.put, self.next_number, self.pods)
        self._fresh: list[Pod] = []
        self._altered: dict[int, Pod] = {}
        """The pods that have changed since their rows were made, by number."""
        self._configured: tuple[int, str] | None = None
        self._gone: dict[tuple[str, str], int] | None = None
        """While a picture is awaited: the number of the item with which a pod or application ended, by partition and name."""
        self._placements: dict[tuple[str, str], tuple[str, str, int]] = {}
        """While a picture is awaited: the node, queue and instant of each placement of a pod that is not in the ledger."""
        self._item = 0
        self._now = 0

    def next_number(self) -> int:
        """Return the next identifier for a row."""
        self._counter += 1
        return self._counter

    def put(self, table: Table, key: object, row: dict[str, Any]) -> None:
        """Set the pending row for a key of a table."""
        self.pending.setdefault(table, {})[key] = row

    def configured(self, revision: int, digest: str) -> None:
        """Record which configuration was written last, by an earlier run."""
        self._configured = (revision, digest)

    def apply(self, frame: Frame) -> None:
        """Apply the rows of a frame, in order."""
        self._item, self._now = frame.number, frame.now
        for kind, *facts in frame.rows:
            _ACTIONS[kind](self, *facts)

    def _run(self, kind: str, size: int, data: bytes) -> None:
        """Apply the rows of a packed run (`rows_fast`) of ``size`` events or decisions of one kind."""
        action = _OF_RUNS[kind]
        for facts in unpacked(Run(kind, size, data)):
            action(self, *facts)

    @property
    def size(self) -> int:
        """The number of rows that are to be written."""
        return sum(map(len, self.pending.values())) + len(self._altered)

    def settle(self) -> None:
        """Make the rows of changed pods, long waits and decisions. These rows are made only just before they are written."""
        for number, pod in self._altered.items():
            self.put(schema.PODS, number, pod.row())
        self._altered.clear()
        for pod in self._fresh:
            wait = pod.wait
            if wait is not None and not wait.is_kept and self._now - wait.since_ms >= BRIEF_MS:
                self._keep(pod, wait, None)
        self._fresh = [one for one in self._fresh if one.wait is not None and not one.wait.is_kept]
        self.decisions.settle()

    # Applications and asks ------------------------------------------------------------------------------------------

    def _application(self, partition: str, application_id: str, user: str) -> None:
        queue, _ = self.applications.get((partition, application_id), ("", ""))
        self.applications[partition, application_id] = (queue, user)

    def _queue(self, partition: str, application_id: str, queue: str) -> None:
        _, user = self.applications.get((partition, application_id), ("", ""))
        self.applications[partition, application_id] = (queue, user)
        for pod in self.pods.of_application(partition, application_id):
            if not pod.queue:
                pod.queue = queue
                self._changed(pod)
                if pod.wait is not None and pod.wait.is_kept:
                    self._keep(pod, pod.wait, None)

    def _application_ended(self, partition: str, application_id: str) -> None:
        self.applications.pop((partition, application_id), None)
        self._note_gone(partition, application_id)
        for pod in self.pods.of_application(partition, application_id):
            self._end(pod, "withdrawn" if pod.placed_ms is None else "application-removed", "")

    def _ask(  # noqa: PLR0913, PLR0917 - the fields of a row
        self,
        rm_id: str,
        partition: str,
        key: str,
        application_id: str,
        created_ms: int | None,
        resource: tuple[tuple[str, int], ...],
        priority: int,
        tags: Tags,
    ) -> None:
        pod = self.pods.get(partition, key)
        if pod is not None:
            pod.touched, pod.rm_id = self._item, rm_id
            return
        asked = self._now if created_ms is None else min(created_ms, self._now)
        pod = self._new(rm_id, partition, key, application_id, tags)
        pod.resource, pod.priority, pod.asked_ms = resource, priority, asked
        self._add(pod)
        self._begin_wait(pod, NOT_TRIED)

    def _running(  # noqa: PLR0913, PLR0917 - the fields of a row
        self,
        rm_id: str,
        partition: str,
        key: str,
        application_id: str,
        created_ms: int | None,
        resource: tuple[tuple[str, int], ...],
        priority: int,
        tags: Tags,
        node_id: str,
        started_ms: int | None,
    ) -> None:
        self._ask(rm_id, partition, key, application_id, created_ms, resource, priority, tags)
        pod = self.pods.get(partition, key)
        assert pod is not None
        if pod.placed_ms is None:
            is_new = pod.arrived_ms == self._now
            started = started_ms if is_new and started_ms is not None else self._now
            pod.asked_ms = min(pod.asked_ms, started)
            pod.is_brought = is_new
            self._place(pod, node_id, pod.queue, started)

    def _placed(self, partition: str, key: str, node_id: str, queue: str) -> None:
        pod = self.pods.get(partition, key)
        if pod is None and self._gone is not None:
            self._placements[partition, key] = (node_id, queue, self._now)
        elif pod is not None and pod.placed_ms is None:
            self._place(pod, node_id, queue or pod.queue, self._now)

    def _place(self, pod: Pod, node_id: str, queue: str, at_ms: int) -> None:
        self._end_wait(pod)
        pod.placed_ms, pod.node_id, pod.queue = at_ms, node_id, queue
        self._changed(pod)

    def _reason(self, rm_id: str, key: str, code: str) -> None:
        pod = self.pods.of_manager(rm_id, key)
        if pod is not None and pod.placed_ms is None:
            pod.touched = self._item
            if pod.wait is None or pod.wait.code != code:
                self._end_wait(pod)
                self._begin_wait(pod, code)

    # Ends -----------------------------------------------------------------------------------------------------------

    def _ended(  # noqa: PLR0913, PLR0917 - the fields of a row
        self,
        partition: str,
        application_id: str,
        key: str,
        termination: str,
        message: str,
        asks_only: bool,  # noqa: FBT001 - a field of a row
    ) -> None:
        """End the pod that a shim released, or all pods of the application if the key is empty."""
        self._note_gone(partition, key or application_id)
        if not key:
            found = self.pods.of_application(partition, application_id)
        else:
            pod = self.pods.get(partition, key)
            if pod is None or (application_id and application_id != pod.application_id):
                return
            found = [pod]
        for pod in found:
            if pod.placed_ms is None:
                self._end(pod, "withdrawn", message)
            elif termination == _FAILED:
                self._end(pod, "bind-failed", message)
                self._again(pod)
            elif not asks_only:
                code, text, pod.decision_id = pod.order or ("ended", message, "")
                self._end(pod, code, text)

    def _again(self, before: Pod) -> None:
        """Add a new waiting ask in place of an allocation whose binding failed."""
        pod = replace(
            before,
            number=self.next_number(),
            asked_ms=self._now,
            arrived_ms=self._now,
            placed_ms=None,
            node_id="",
            ended_ms=None,
            end_code="",
            end_text="",
            decision_id="",
            is_brought=False,
            order=None,
            wait=None,
        )
        self._add(pod)
        self._begin_wait(pod, NOT_TRIED)

    def _ordered(
        self, partition: str, key: str, termination: str, message: str, decision_id: str
    ) -> None:
        """Record the core's order to release a pod. If no shim has to confirm the release, also record the end of the pod."""
        pod = self.pods.get(partition, key)
        code = _ORDERS.get(termination)
        if code is None:
            self._note_gone(partition, key)
        if pod is None:
            return
        if code is not None and (pod.placed_ms is not None or code != "timeout"):
            pod.order = (code, message, decision_id)
        else:
            self._end(pod, code or "removed", message)

    def _refused(self, partition: str, key: str) -> None:
        pod = self.pods.get(partition, key)
        if pod is not None and pod.arrived_ms == self._now:
            self._end(pod, "refused", "")

    def _stays(self, partition: str, key: str, decision_id: str) -> None:
        pod = self.pods.get(partition, key)
        if pod is not None:
            pod.order = None
        self.decisions.stays(partition, key, decision_id)

    def _end(self, pod: Pod, code: str, text: str) -> None:
        self._end_wait(pod)
        pod.ended_ms = max(self._now, pod.placed_ms or 0)
        pod.end_code, pod.end_text = code, text
        self._changed(pod)
        self.pods.remove(pod)

    # Pictures -------------------------------------------------------------------------------------------------------

    def _note_gone(self, partition: str, name: str) -> None:
        if self._gone is not None:
            self._gone[partition, name] = self._item

    def _picture(self, data: bytes) -> None:
        """Correct the known pods by pictures, which are lists of all pods of a partition.

        A pod that changed after a picture was taken stays as it is. Without data, only record that a picture is
        awaited from now on.
        """
        if not data:
            self._gone = {}
            self._placements.clear()
            return
        for each in pickle.loads(data):  # noqa: S301 - from the process that started this one
            picture = Picture(*each)
            shown = {one[1]: Pictured(*one) for one in picture.pods}
            gone = [
                pod
                for pod in self.pods.of_partition(picture.partition)
                if pod.key not in shown and pod.touched <= picture.number
            ]
            for pod in gone:
                self._end(pod, "missed", "it ended while the history did not watch")
            added = sum(self._correct(picture, one) for one in shown.values())
            self.starts.compared(len(gone), added)
        self.starts.settled()
        self._gone = None

    def _correct(self, picture: Picture, one: Pictured) -> bool:
        """Add or place a pod as the picture shows it. Return whether the pod was not known before."""
        pod = self.pods.get(picture.partition, one.key)
        is_new = pod is None
        gone = self._gone or {}
        ends = (gone.get((picture.partition, each), 0) for each in (one.key, one.application_id))
        if pod is None and max(ends) > picture.number:
            return False
        if pod is None:
            pod = self._new(one.rm_id, picture.partition, one.key, one.application_id, one.tags)
            pod.resource, pod.priority = one.resource, one.priority
            pod.asked_ms = min(one.created_ms or self._now, self._now)
            pod.queue, pod.user = one.queue, one.user
            self._add(pod)
        elif pod.touched > picture.number:
            return False
        if one.node_id and pod.placed_ms is None:
            started = min(one.placed_ms or self._now, self._now)
            pod.asked_ms = min(pod.asked_ms, started)
            pod.is_brought = is_new
            self._place(pod, one.node_id, one.queue, started)
        elif not one.node_id and pod.wait is None:
            self._begin_wait(pod, one.code or NOT_TRIED)
        placed = self._placements.get((picture.partition, one.key))
        if is_new and placed is not None and pod.placed_ms is None:
            self._place(pod, *placed)
        return is_new

    # Other rows -----------------------------------------------------------------------------------------------------

    def _sample(self, data: bytes) -> None:
        self.series.sample(data)

    def _configuration(self, found: InForce) -> None:
        revision = found.revision
        if self._configured == (revision.number, revision.digest):
            return
        self._configured = (revision.number, revision.digest)
        number = self.next_number()
        row = {
            "id": number,
            "revision": revision.number,
            "digest": revision.digest,
            "source": revision.source,
            "applied_by": revision.by,
            "at_ms": revision.at_ms or self._now,
            "document": found.text,
        }
        self.put(schema.CONFIGURATIONS, number, row)

    def _gap(self, lost: Lost) -> None:
        number = self.next_number()
        row = {"id": number, "from_ms": lost.from_ms, "to_ms": lost.to_ms}
        self.put(schema.GAPS, number, row | {"lost": lost.records, "why": lost.why})

    def _term(self, rm_id: str, epoch: int) -> None:
        self.starts.registering(rm_id, epoch)

    def _leads(self) -> None:
        self.starts.leads(self._now)

    def _follows(self, leader: str) -> None:
        self.starts.follows(self._now, leader)

    def _manager(self, rm_id: str, code: str, message: str) -> None:
        if code == Code.SYNC_COMPLETE:
            self.starts.synced(rm_id, self._now, message)
        elif code == Code.MANAGER_REGISTERED:
            self.starts.registered(rm_id, self._now, message)

    def _decided(self, record: Any) -> None:  # noqa: ANN401 - a record, from the pipe
        self.decisions.decided(record)

    def _victims(self, partition: str, decision_id: str, victims: Iterable[Any]) -> None:
        self.decisions.victims(partition, decision_id, victims)

    def _moved(self, *facts: Any) -> None:  # noqa: ANN401 - the fields of a row
        self.decisions.moved(*facts)

    # Pods -----------------------------------------------------------------------------------------------------------

    def _new(self, rm_id: str, partition: str, key: str, application_id: str, tags: Tags) -> Pod:
        queue, user = self.applications.get((partition, application_id), ("", ""))
        now = self._now
        number, name = self.next_number(), self._name_of(tags)
        return Pod(
            number, rm_id, partition, key, name, application_id, queue, user, (), 0, now, now
        )

    def _add(self, pod: Pod) -> None:
        self.pods.add(pod)
        self._changed(pod)

    def _changed(self, pod: Pod) -> None:
        pod.touched = self._item
        self._altered[pod.number] = pod

    def _begin_wait(self, pod: Pod, code: str) -> None:
        pod.wait = Wait(self.next_number(), code, self._now)
        if code == NOT_TRIED:
            self._fresh.append(pod)
        else:
            self._keep(pod, pod.wait, None)

    def _end_wait(self, pod: Pod) -> None:
        wait, pod.wait = pod.wait, None
        if wait is not None and (wait.is_kept or self._now - wait.since_ms >= BRIEF_MS):
            self._keep(pod, wait, self._now)

    def _keep(self, pod: Pod, wait: Wait, until_ms: int | None) -> None:
        wait.is_kept = True
        row = {
            "id": wait.number,
            "pod_id": pod.number,
            "partition": pod.partition,
            "queue": pod.queue,
            "code": wait.code,
            "since_ms": wait.since_ms,
            "until_ms": until_ms,
        }
        self.put(schema.WAITS, wait.number, row)


_ACTIONS: Final[Mapping[str, Callable[..., None]]] = {
    Row.RUN: Ledger._run,
    Row.APPLICATION: Ledger._application,
    Row.QUEUE: Ledger._queue,
    Row.APPLICATION_ENDED: Ledger._application_ended,
    Row.ASK: Ledger._ask,
    Row.RUNNING: Ledger._running,
    Row.PLACED: Ledger._placed,
    Row.REASON: Ledger._reason,
    Row.ENDED: Ledger._ended,
    Row.ORDERED: Ledger._ordered,
    Row.REFUSED: Ledger._refused,
    Row.STAYS: Ledger._stays,
    Row.DECIDED: Ledger._decided,
    Row.VICTIMS: Ledger._victims,
    Row.MOVED: Ledger._moved,
    Row.MANAGER: Ledger._manager,
    Row.CONFIGURATION: Ledger._configuration,
    Row.SAMPLE: Ledger._sample,
    Row.PICTURE: Ledger._picture,
    Row.GAP: Ledger._gap,
    Row.TERM: Ledger._term,
    Row.LEADS: Ledger._leads,
    Row.FOLLOWS: Ledger._follows,
}
"""The action for each kind of row. The kinds that are about the run itself are handled in `writing`."""

_OF_RUNS: Final[Mapping[str, Callable[..., None]]] = {
    AskAdded.__name__: Ledger._ask,
    AllocationAdded.__name__: Ledger._running,
    ReleaseRequested.__name__: Ledger._ended,
    Placed.__name__: Ledger._placed,
    Released.__name__: Ledger._ordered,
    AskStateChanged.__name__: Ledger._reason,
}
"""The action for each event or decision of a packed run (`rows_fast`), by the kind of the run."""
