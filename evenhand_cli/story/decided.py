"""The decisions of a step in plain words, each with its reason; equal decisions share a line."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from evenhand.v1 import decisions_pb2 as pb
from evenhand_cli.render.decision_brief import numbers
from evenhand_cli.render.decision_line import decision_line, listed
from evenhand_cli.rules import rules
from evenhand_cli.story.lines import told as as_lines
from server.model.decisions import (
    AskReleased,
    AskState,
    AskStateChanged,
    Decided,
    Decision,
    DecisionMoved,
    Noted,
    Placed,
    Released,
    ShadowDecided,
    Termination,
    Withdrawn,
)
from server.model.reasons import Code
from server.model.records import DecisionState
from server.model.shadow import Choice, ShadowRecord

NAMES_MAX: Final = 4
"""Maximum number of names, or of ranges of names, in a line."""
DECISIONS_MAX: Final = 8
"""Maximum number of decisions with one reason that have a line each."""
QUEUES_MAX: Final = 2
"""Maximum number of queues whose numbers are part of a reason."""
SILENT: Final = (Code.CONFIGURATION_APPLIED, Code.MANAGER_REGISTERED)
"""Codes of notes that only repeat an event of the step."""
EXPECTED: Final = {DecisionState.ORDERED, DecisionState.CONFIRMED, DecisionState.FULFILLED}
"""States of decisions about which other lines report already."""
ABOUT_SUBJECT: Final = "it "
"""The beginning of a note in which `it` is the note's subject."""
_RULE: Final = re.compile(r"\b[A-Z][0-9]{1,2}\b")


@dataclass(slots=True)
class Entry:
    """A decision as text of one or more lines, in full and in short.

    An entry also has the numbers of the queues and the rule of the decision.
    """

    lines: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    because: str = ""

    @property
    def rules(self) -> list[str]:
        """The ids of the rules that the reason names."""
        return [one for one in dict.fromkeys(_RULE.findall(self.because)) if one in rules()]


def decided(
    decisions: Iterable[Decision],
    answers: Mapping[str, pb.Decision],
    names: Mapping[str, str],
) -> list[Entry]:
    """Return the decisions of a step in the order in which they were made.

    `answers` are the decisions of preemption as the core explains them, by id. `names` are the names of earlier decisions.
    """
    every = list(decisions)
    writer = _Writer(answers, names, _ordered(every))
    for one in every:
        writer.add(one)
    return list(writer.entries())


def _ordered(decisions: Iterable[Decision]) -> set[str]:
    """Return the victims of the decisions that were made in this step."""
    made = (one.record for one in decisions if isinstance(one, Decided))
    return {victim.key for record in made for victim in record.victims}


@dataclass(slots=True)
class _Writer:
    """The lines of one step.

    Asks and allocations with the same outcome share a group. Groups are in the order of their first names.
    """

    answers: Mapping[str, pb.Decision]
    names: Mapping[str, str]
    ordered: set[str]
    groups: dict[str, list[str]] = field(default_factory=dict)
    """The names of each group, by the pattern of the group's sentence, such as `{} waits: ...`.

    The group of a complete line has a key instead of a pattern, and no names.
    """
    short: dict[str, str] = field(default_factory=dict)
    whole: dict[str, Entry] = field(default_factory=dict)

    def add(self, one: Decision) -> None:
        """Add a decision to the group of decisions with its kind and reason."""
        match one:
            case Placed():
                self._name("{} {is} placed on " + _plain(one.node_id), one.key)
            case AskStateChanged(state=AskState.FAILED | AskState.SKIPPED):
                reason, code = _plain(one.reason), _plain(one.code)
                self._name(
                    f"{{}} {{waits}}: {reason} ({code})", one.key, f"{{}} {{waits}} ({code})"
                )
            case Noted():
                self._note(one)
            case AskReleased():
                reasons = filter(None, (one.termination.name, one.message))
                self._name("{} {ends}: " + _plain(", ".join(reasons)), one.key)
            case Decided() | DecisionMoved() | Withdrawn() | Released() | ShadowDecided():
                self._of_preemption(one)
            case _:
                for line, reason in as_lines([one], (), {}):
                    self._whole(f"{line} {reason}", f"{line}: {reason}" if reason else line)

    def entries(self) -> Iterator[Entry]:
        """Yield the added decisions as entries. Decisions with the same outcome are one group, and share an entry."""
        for key, names in self.groups.items():
            if key in self.whole:
                yield self.whole[key]
            else:
                forms = (key, self.short.get(key, key))
                full, short = ([_with_names(form, names)] for form in forms)
                yield Entry(full, short)

    def _name(self, form: str, name: str, short: str = "") -> None:
        """Add a name to the group whose sentence has the pattern `form`, such as `{} waits: ...`.

        `short` is the pattern of the sentence in short output.
        """
        self.groups.setdefault(form, []).append(name)
        if short:
            self.short[form] = short

    def _whole(self, key: str, line: str, because: str = "") -> Entry:
        """Add a complete line, which has no place for names, to the entry of the key, and return the entry."""
        self.groups.setdefault(key, [])
        entry = self.whole.setdefault(key, Entry(because=because))
        entry.lines.append(line)
        entry.short.append(line)
        return entry

    def _note(self, one: Noted) -> None:
        if one.code in SILENT or (one.code is Code.QUOTA_RUN and self.answers):
            return
        if one.message.startswith(ABOUT_SUBJECT):
            line = f"{one.subject} {one.message.removeprefix(ABOUT_SUBJECT)}"
            self._whole(f"{one.code} {line}", line)
        elif one.subject in one.message:
            self._whole(f"{one.code} {one.message}", one.message)
        else:
            self._name("{}: " + _plain(one.message), one.subject)

    def _of_preemption(
        self, one: Decided | DecisionMoved | Withdrawn | Released | ShadowDecided
    ) -> None:
        match one:
            case Decided():
                self._decided(one)
            case DecisionMoved():
                self._moved(one)
            case Withdrawn():
                self._name("{} {stays}: " + _plain(one.reason), one.key)
            case Released():
                self._released(one)
            case ShadowDecided():
                record = one.record
                line = f"shadow ({record.difference}): {_of_shadow(record)}"
                self._whole(line, line, f"{record.law}: {record.because}")

    def _decided(self, one: Decided) -> None:
        record, answer = one.record, self.answers.get(one.record.decision_id)
        observed = " (only observed)" if record.state is DecisionState.OBSERVED else ""
        if answer is None:
            self._whole(record.decision_id, f"{record.policy}: {record.summary}{observed}")
            return
        because = "; ".join(dict.fromkeys(each.because for each in answer.victims if each.because))
        key = f"{record.policy} {because}{observed}"
        line = f"{record.policy}: {decision_line(answer, NAMES_MAX)}{observed}"
        entry = self._whole(key, line, because)
        if not entry.held:
            told = numbers(answer, QUEUES_MAX, with_victims=True)
            entry.held += [str(held) for _, held in told]
        if entry.rules:
            entry.short[-1] = f"{line} ({', '.join(entry.rules)})"

    def _moved(self, one: DecisionMoved) -> None:
        """Add the end of a decision.

        The end is left out if the ask of the decision was placed, or if the step itself ended the decision.
        """
        if one.key or one.state in EXPECTED:
            return
        name = self.names.get(one.decision_id, one.decision_id)
        line = f"decision {name} is {one.state}: {one.reason}"
        self._whole(f"{one.decision_id} {one.state}", line)

    def _released(self, one: Released) -> None:
        """Add a release that no other line reports.

        Releases by the manager, and victims of new decisions, have lines already.
        """
        if one.termination is Termination.STOPPED_BY_RM or one.key in self.ordered:
            return
        ((line, _),) = as_lines([one], (), {})
        self._whole(line, line, one.message)


def _of_shadow(record: ShadowRecord) -> str:
    """Return a sentence that compares the victims for an ask under the shadow settings and under the settings in force."""
    if record.ended_ms:
        return f"its decision for {record.key} ended: {record.end_reason}"
    if record.shadow is None:
        return f"no pod would be evicted for {record.key}{_instead(record.live)}"
    victims, node = _choice(record.shadow)
    instead = "" if record.difference == "same" else _instead(record.live)
    return f"{victims} would be evicted{node} for {record.key}{instead}"


def _instead(live: Choice | None) -> str:
    """Return the end of a sentence about the shadow; this end names the victims under the settings in force."""
    return f", instead of {''.join(_choice(live))}" if live is not None else ""


def _choice(one: Choice) -> tuple[str, str]:
    """Return the victims under the live or the shadow settings, and the node from which the victims are evicted."""
    names = [each.key for each in one.victims]
    victims = listed(names, NAMES_MAX) if names else "no pod"
    return victims, f" from {one.node_id}" if one.node_id else ""


def first_lines(lines: list[str]) -> list[str]:
    """Return the first lines of an entry, followed by a line with the number of lines that are left out."""
    rest = len(lines) - DECISIONS_MAX
    return lines if rest <= 0 else [*lines[:DECISIONS_MAX], f"and {rest:,} more"]


def _plain(text: str) -> str:
    """Return the text with braces doubled, so that `_with_names` writes the braces and puts no names in their place."""
    return text.replace("{", "{{").replace("}", "}}")


def _with_names(form: str, names: list[str]) -> str:
    several = len(names) > 1
    words = {
        "is": "are" if several else "is",
        "waits": "wait" if several else "waits",
        "stays": "stay" if several else "stays",
        "ends": "end" if several else "ends",
    }
    return form.format(listed(names, NAMES_MAX), **words)
