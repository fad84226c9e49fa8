"""The decisions that the writing process follows until they end: whole records, with victims and changes of state."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Table

from server.history import schema
from server.history.pods import Pods, resource_text
from server.model.decisions import DecisionMoved
from server.model.records import DecisionRecord, DecisionState, Victim
from server.record.query import after
from server.record.serialization import Fields, Forms

Put = Callable[[Table, object, dict[str, Any]], None]
_FORM: Final = Fields(DecisionRecord, Forms().of)


def written(record: DecisionRecord) -> str:
    """Return a record as JSON."""
    return json.dumps(_FORM.write(record), separators=(",", ":"))


def record_of(text: str) -> DecisionRecord:
    """Return the record of a JSON text. Raise BadFormError or ValueError for a text that another version of the program wrote."""
    found = _FORM.read(json.loads(text))
    assert isinstance(found, DecisionRecord)
    return found


def claimant_of(record: DecisionRecord) -> str:
    """Return the queue for which a decision frees capacity, or the queue whose usage the decision reduces."""
    if record.beneficiaries:
        return record.beneficiaries[0].queue
    return record.shrink.queue if record.shrink is not None else ""


class Decisions:
    """The decisions that have not ended, by partition and id. `settle` makes the rows of the decisions that changed."""

    def __init__(self, put: Put, next_number: Callable[[], int], pods: Pods) -> None:
        self._put = put
        self._next_number = next_number
        self._pods = pods
        self._open: dict[tuple[str, str], DecisionRecord] = {}
        self._victims: dict[tuple[str, str], list[Victim]] = {}
        self._names: dict[tuple[str, str], dict[str, str]] = {}
        self._moved_ms: dict[tuple[str, str], int] = {}
        self._changed: set[tuple[str, str]] = set()

    def adopt(self, record: DecisionRecord, names: dict[str, str]) -> None:
        """Follow a decision that was made in an earlier run and had not ended."""
        place = (record.partition, record.decision_id)
        self._open[place], self._names[place] = record, names
        self._victims[place] = list(record.victims)

    def decided(self, record: DecisionRecord) -> None:
        """Record a decision. After this call, the caller passes the decision's victims to `victims`.

        If the decision was planned again, the victims of its earlier plan are recorded as not evicted.
        """
        place = (record.partition, record.decision_id)
        for one in self._victims.get(place, ()):
            self._put_victim(place, one, stayed=True)
        self._open[place], self._victims[place] = record, []
        names = self._names.setdefault(place, {})
        for key in (one.key for one in record.beneficiaries):
            self._name(record.partition, key, names)
        for group in record.spared:
            for key in group.keys:
                self._name(record.partition, key, names)
        self._moved_ms[place] = record.at_ms
        self._changed.add(place)

    def victims(self, partition: str, decision_id: str, victims: Iterable[Any]) -> None:
        """Add victims to a decision that is followed."""
        place = (partition, decision_id)
        if place not in self._open:
            return
        for each in victims:
            one = Victim(*each)
            self._victims[place].append(one)
            self._name(partition, one.key, self._names[place])
            self._put_victim(place, one, stayed=one.key in self._open[place].stayed)
        self._changed.add(place)

    def moved(  # noqa: PLR0913, PLR0917 - the fields of a row
        self, partition: str, decision_id: str, state: str, at_ms: int, reason: str, key: str
    ) -> None:
        """Record a change of a decision's state, or, if ``key`` is given, the veto of the victim with this key."""
        number = self._next_number()
        row = {"id": number, "partition": partition, "decision_id": decision_id, "at_ms": at_ms}
        self._put(schema.MOVES, number, row | {"state": state, "reason": reason, "pod_key": key})
        place = (partition, decision_id)
        record = self._open.get(place)
        if record is None:
            return
        if key:
            self._stay(place, key)
        change = DecisionMoved("", partition, decision_id, DecisionState(state), at_ms, reason, key)
        whole = replace(record, victims=tuple(self._victims[place]))
        self._open[place] = replace(after(whole, change), victims=())
        self._moved_ms[place] = at_ms
        self._changed.add(place)

    def stays(self, partition: str, key: str, decision_id: str) -> None:
        """Record that the eviction of a decision's victim was withdrawn, so that the pod stays."""
        place = (partition, decision_id)
        record = self._open.get(place)
        if record is not None:
            self._open[place] = replace(record, withdrawn=(*record.withdrawn, key))
            self._stay(place, key)
            self._changed.add(place)

    def settle(self) -> None:
        """Make the rows of the decisions that changed, and forget the decisions that have ended."""
        for place in self._changed:
            record = replace(self._open[place], victims=tuple(self._victims[place]))
            row = {
                "partition": record.partition,
                "decision_id": record.decision_id,
                "at_ms": record.at_ms,
                "policy": record.policy,
                "queue": claimant_of(record),
                "state": record.state.value,
                "moved_ms": self._moved_ms.get(place, record.at_ms),
                "record": written(record),
                "names": json.dumps(self._names[place], separators=(",", ":")),
            }
            self._put(schema.DECISIONS, place, row)
            if not record.state.is_open:
                # The decision's rows are complete. A later change only adds a row of `moves`.
                del self._open[place], self._victims[place], self._names[place]
                self._moved_ms.pop(place, None)
        self._changed.clear()

    def _name(self, partition: str, key: str, names: dict[str, str]) -> None:
        pod = self._pods.get(partition, key)
        if pod is not None and pod.name:
            names[key] = pod.name

    def _stay(self, place: tuple[str, str], key: str) -> None:
        found = next((one for one in self._victims[place] if one.key == key), None)
        if found is not None:
            self._put_victim(place, found, stayed=True)

    def _put_victim(self, place: tuple[str, str], one: Victim, *, stayed: bool) -> None:
        record = self._open[place]
        pod = self._pods.get(place[0], one.key)
        row = {
            "partition": place[0],
            "decision_id": place[1],
            "pod_key": one.key,
            "at_ms": record.at_ms,
            "policy": record.policy,
            "claimant": claimant_of(record),
            "name": self._names[place].get(one.key, ""),
            "queue": one.queue,
            "application_id": one.application_id,
            "user_name": "" if pod is None else pod.user,
            "resources": resource_text(one.resource),
            "ran_ms": one.ran_ms,
            "stayed": int(stayed or record.state is DecisionState.OBSERVED),
        }
        self._put(schema.VICTIMS, (*place, one.key), row)
