"""The words of a story: one line is one event, or a series of equal events; unknown words are errors.

    node n1 memory=100 label:zone=a taint:gpu=yes:NoSchedule drained
    resize n1 memory=50          relabel n1 label:zone=b          taint n1 taint:gpu=:NoExecute
    drain n1                     enable n1                        remove n1
    app x root.a user=ann groups=dev|ops tag:namespace=shop       end x
    app x root.a holding:memory=30 style=Hard timeout=60000       (placeholders: what they sum up to, their time)
    ask x1..x3 x memory=10 priority=5 created=-2000 job=train/3 timeout=5000
    existing e1 x n1 memory=10   foreign f1 n1 memory=5 static
    release x1                   release x1 SCHEDULING_FAILED_ON_RM     release-all x
    register other explicit      synced other              register rm explicit forget
    confirm x1                   veto x1                      disruptions shop/web 2   (or: gone)
    replaced p1                  (confirms that a placeholder is gone)
    agrees x1                    refuses x1 of=x2          (answers to the plan check of x1)

An ask's constraints: select=zone:a, in=zone:a|b, not-in=zone:a, exists=zone, absent=zone, above=cores:8, below=cores:8,
tolerate=key:value:effect, node=n1, required-node=n1, allowed=n1|n2, excluded=n1, port=80/TCP. A gang of the published
interface: ask p1 x memory=10 placeholder group=g, then ask x1 x memory=10 group=g. Options on preemption:
allow-self=no, allow-other=no, protection=prefer-not|firm|untouchable, disrupts=shop/web, class=firm|lendable,
trigger=yes|no. A pod that runs already may also have: started=-1000, dying, mark=DECISION/beneficiary/node. The
DECISION `last` is the one that evicted the pod last. Instants are milliseconds after the story's start. A word that is
not known is an error.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from evenhand_cli.near import near_matches
from server.model.asks import (
    AskSpec,
    Constraints,
    GroupPreference,
    HostPort,
    Operator,
    Preferences,
    PreferredTerm,
    Protection,
    ReleaseMark,
    Requirement,
    Taint,
    Term,
    Toleration,
)
from server.model.decisions import Termination
from server.model.events import (
    AllocationAdded,
    ApplicationAdded,
    ApplicationRemoved,
    ApplicationRetagged,
    AskAdded,
    DisruptionsAllowed,
    Event,
    ForeignAdded,
    ManagerRegistered,
    NodeAdded,
    NodeDrained,
    NodeEnabled,
    NodeRemoved,
    NodeUpdated,
    PlanChecked,
    ReleaseRequested,
    SyncCompleted,
    VictimVetoed,
)
from server.model.resources import Resource

START: Final = 1_800_000_000_000
MANAGER: Final = "rm"
TYPES: Final = ("memory", "vcore", "gpu", "pods", "license")
ROW: Final = re.compile(r"(?P<stem>.*?)(?P<first>[0-9]{1,9})\.\.(?P=stem)(?P<last>[0-9]{1,9})")
ROW_MAX: Final = 10_000
"""Maximum number of names in a row such as `x1..x10000`."""
LINE_MAX: Final = 2_000
"""Maximum number of characters of a line."""
NAME_MAX: Final = 253
"""Maximum number of characters of the name, or of the row of names, that follows the verb of a line."""
QUOTED_MAX: Final = 80
"""Maximum number of characters that an error quotes."""
NUMBER_MAX: Final = (1 << 63) - 1
"""The largest number that the wire carries."""
OPERATORS: Final = {
    "in": Operator.IN,
    "not-in": Operator.NOT_IN,
    "exists": Operator.EXISTS,
    "absent": Operator.DOES_NOT_EXIST,
    "above": Operator.GT,
    "below": Operator.LT,
}


_Value = TypeVar("_Value")


class UnknownWordError(ValueError):
    """A line of a story with a word that is unknown, missing or repeated.

    `advice` offers similar words.
    """

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice


@dataclass
class Words:
    """The parts of one line: plain words, and options of the form ``key=value``."""

    line: str
    plain: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=lambda: set(TYPES))
    """The words that are allowed after the verb of the line, for suggestions."""

    @classmethod
    def of(cls, line: str) -> "Words":
        """Return the parts of a line that is split at its blanks."""
        words = cls(line)
        for word in line.split():
            key, equals, value = word.partition("=")
            if equals and key in words.options:
                raise UnknownWordError(f"`{quoted(key)}` stands twice in `{quoted(line)}`")
            if equals:
                words.options[key] = value
            else:
                words.plain.append(word)
        return words

    def next(self, default: str | None = None) -> str:
        """Return the next plain word."""
        if self.plain:
            return self.plain.pop(0)
        if default is None:
            raise UnknownWordError(f"a word is missing in `{quoted(self.line)}`")
        return default

    def flag(self, name: str) -> bool:
        """Return whether the line has this plain word, and remove it."""
        self.known.add(name)
        if name in self.plain:
            self.plain.remove(name)
            return True
        return False

    def option(self, name: str, default: str = "") -> str:
        """Return the value of ``name=value``."""
        self.used.add(name)
        self.known.add(name)
        return self.options.get(name, default)

    def number(self, name: str, default: int = 0) -> int:
        """Return the value of ``name=number``."""
        return self.whole(name, self.option(name, str(default)))

    def whole(self, name: str, value: str) -> int:
        """Return a value as a number of 64 bits. `name` names the value in errors."""
        sign, digits = (-1, value[1:]) if value.startswith("-") else (1, value)
        is_number = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(NUMBER_MAX))
        if not is_number or int(digits) > NUMBER_MAX:
            raise self.bad(name, value, "a whole number")
        return sign * int(digits)

    def choice(self, name: str, values: Mapping[str, _Value], default: str = "") -> _Value:
        """Return the value that belongs to the word in ``name=word``."""
        word = self.option(name, default)
        if word not in values:
            raise self.bad(name, word, f"one of {', '.join(values)}", near_matches(word, values))
        return values[word]

    def bad(self, name: str, value: str, form: str, advice: str = "") -> UnknownWordError:
        """Return the error of a value in the wrong form."""
        return UnknownWordError(
            f"`{name}` is {form}, not `{quoted(value)}`, in `{quoted(self.line)}`", advice
        )

    def many(self, name: str) -> tuple[str, ...]:
        """Return the values of ``name=one|two``."""
        self.known.add(name)
        return tuple(self.option(name).split("|")) if name in self.options else ()

    def prefixed(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """Return all options ``prefix:key=value`` as pairs of key and value."""
        found = [key for key in self.options if key.startswith(f"{prefix}:")]
        self.used.update(found)
        return tuple((key.removeprefix(f"{prefix}:"), self.options[key]) for key in found)

    def resource(self) -> Resource:
        """Return the amounts of all resource types, unchecked, so that a story can also send bad quantities."""
        return tuple((kind, self.number(kind)) for kind in sorted(TYPES) if kind in self.options)

    def finish(self) -> None:
        """Raise UnknownWordError if a part of the line was not read."""
        left = [*self.plain, *(key for key in self.options if key not in self.used)]
        if left:
            named = quoted(", ".join(f"`{one}`" for one in left))
            raise UnknownWordError(
                f"{'unknown words' if len(left) > 1 else 'unknown word'} {named} in `{quoted(self.line)}`",
                near_matches(left[0], self.known),
            )


@dataclass
class Known:
    """The facts to which later lines may refer.

    The facts about the key of an ask or allocation are its application, the decision that released it, and its last
    plan check.
    """

    owners: dict[str, str] = field(default_factory=dict)
    decisions: dict[str, str] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)


def events(line: str, known: Known) -> Iterator[Event]:
    """Yield the events of a line. Raises UnknownWordError if a word of the line is unknown or has the wrong form."""
    verb, name_or_row = head(line)
    for name in row(name_or_row):
        words = Words.of(line)
        words.plain[:2] = []
        event = VERBS[verb](words, name, known)
        words.finish()
        yield event


def quoted(text: str) -> str:
    """Return the first characters of a text, which errors quote."""
    return text if len(text) <= QUOTED_MAX else f"{text[: QUOTED_MAX - 3]}..."


def head(line: str) -> tuple[str, str]:
    """Return the verb of a line, and the name or the row of names after it.

    Raises UnknownWordError if the verb is unknown, or if the line or the name is too long.
    """
    if len(line) > LINE_MAX:
        raise UnknownWordError(f"a line has {len(line):,} characters, allowed are {LINE_MAX:,}")
    verb, *rest = line.split() or [""]
    if verb not in VERBS:
        raise UnknownWordError(
            f"unknown verb `{quoted(verb)}` in `{quoted(line)}`", near_matches(verb, VERBS)
        )
    name = rest[0] if rest else MANAGER
    if len(name) > NAME_MAX:
        what = f"a name has {len(name):,} characters, allowed are {NAME_MAX}, in `{quoted(line)}`"
        raise UnknownWordError(what)
    return verb, name


def row(name: str) -> list[str]:
    """Return the names of a row such as `x1..x3`, or a list with the single name.

    Raises UnknownWordError if the row has no name, or more than ROW_MAX names.
    """
    found = ROW.fullmatch(name)
    if not found:
        return [name]
    first, last = int(found["first"]), int(found["last"])
    if not 0 <= last - first < ROW_MAX:
        raise UnknownWordError(f"`{name}` names {last - first + 1:,} objects, not 1 to {ROW_MAX:,}")
    return [f"{found['stem']}{number}" for number in range(first, last + 1)]


def _parts(words: Words, name: str, value: str, form: str) -> list[str]:
    """Return the parts of a value such as `key:value:effect`. The value must have as many parts as `form`."""
    parts = value.split(":")
    if len(parts) != len(form.split(":")):
        raise words.bad(name, value, f"{form}")
    return parts


def _taints(words: Words) -> tuple[Taint, ...]:
    return tuple(
        Taint(key, *_parts(words, f"taint:{key}", value, "VALUE:EFFECT"))
        for key, value in words.prefixed("taint")
    )


def _where(words: Words) -> tuple[str, str]:
    return words.option("rm", MANAGER), words.option("partition", "default")


def _register(words: Words, name: str, known: Known) -> Event:
    del known
    explicit, forget = words.flag("explicit"), words.flag("forget")
    epoch, instance = words.number("epoch"), words.option("instance")
    return ManagerRegistered(
        name, explicit_sync=explicit, epoch=epoch, instance=instance, forget=forget
    )


def _synced(words: Words, name: str, known: Known) -> Event:
    del known
    counts = ("nodes", "applications", "allocations", "asks")
    return SyncCompleted(name, *(words.number(each) for each in counts))


def _node(words: Words, name: str, known: Known) -> Event:
    del known
    manager, partition = _where(words)
    schedulable = not words.flag("drained")
    labels, taints = words.prefixed("label"), _taints(words)
    return NodeAdded(manager, name, words.resource(), schedulable, partition, labels, taints)


def _resize(words: Words, name: str, known: Known) -> Event:
    del known
    manager, partition = _where(words)
    return NodeUpdated(manager, name, words.resource(), partition)


def _relabel(words: Words, name: str, known: Known) -> Event:
    del known
    manager, partition = _where(words)
    return NodeUpdated(manager, name, None, partition, labels=words.prefixed("label"))


def _taint(words: Words, name: str, known: Known) -> Event:
    del known
    manager, partition = _where(words)
    return NodeUpdated(manager, name, None, partition, taints=_taints(words))


def _on_node(event: type[NodeDrained | NodeEnabled | NodeRemoved]) -> "Verb":
    def make(words: Words, name: str, known: Known) -> Event:
        del known
        manager, partition = _where(words)
        return event(manager, name, partition)

    return make


def _application(words: Words, name: str, known: Known) -> Event:
    del known
    manager, partition = _where(words)
    return ApplicationAdded(
        manager,
        name,
        words.next(""),
        partition,
        words.option("user", "nobody"),
        words.many("groups"),
        dict(words.prefixed("tag")),
        words.number("timeout"),
        words.option("style"),
        tuple((kind, words.whole(kind, amount)) for kind, amount in words.prefixed("holding")),
    )


def _retag(words: Words, name: str, known: Known) -> Event:
    del known
    manager, partition = _where(words)
    return ApplicationRetagged(manager, name, dict(words.prefixed("tag")), partition)


def _end(words: Words, name: str, known: Known) -> Event:
    del known
    manager, partition = _where(words)
    return ApplicationRemoved(manager, name, partition)


def _spec(words: Words) -> AskSpec:
    job, _, members = words.option("job").partition("/")
    return AskSpec(
        resource=words.resource(),
        priority=words.number("priority"),
        constraints=_constraints(words),
        originator=words.flag("originator"),
        placeholder=words.flag("placeholder"),
        task_group=words.option("group"),
        gang_key=job,
        min_members=words.whole("job", members or "0"),
        allow_preempt_self=_yes(words, "allow-self"),
        allow_preempt_other=_yes(words, "allow-other"),
        protection=_protection(words),
        lendable=_said(words, "class", {"firm": False, "lendable": True}),
        may_trigger=_said(words, "trigger", {"yes": True, "no": False}),
        disruption_groups=words.many("disrupts"),
        rm_check=words.flag("rm-check"),
        plan_checks=words.flag("plan-checks"),
        timeout_ms=words.number("timeout"),
        preferences=_preferences(words),
    )


def _yes(words: Words, name: str) -> bool:
    return words.choice(name, {"yes": True, "no": False}, "yes")


def _said(words: Words, name: str, values: dict[str, bool]) -> bool | None:
    """Return the value in ``values`` that belongs to the word of an option.

    Return None if the line does not have the option.
    """
    words.known.add(name)
    return words.choice(name, values) if name in words.options else None


def _protection(words: Words) -> Protection:
    return words.choice("protection", PROTECTIONS, "normal")


PROTECTIONS: Final = {one.name.lower().replace("_", "-"): one for one in Protection}


def _constraints(words: Words) -> Constraints:
    words.known.update(OPERATORS)
    terms = [
        Term((Requirement(key, operator, tuple(values.split("|")) if values else ()),))
        for word, operator in OPERATORS.items()
        if word in words.options
        for key, _, values in [words.option(word).partition(":")]
    ]
    tolerated = [
        _parts(words, "tolerate", each, "KEY:VALUE:EFFECT") for each in words.many("tolerate")
    ]
    ports = [each.partition("/") for each in words.many("port")]
    return Constraints(
        node_selector=tuple((key, value) for key, value in map(_pair, words.many("select"))),
        required_terms=tuple(terms),
        tolerations=tuple(
            Toleration(key, "Equal" if value else "Exists", value, effect)
            for key, value, effect in tolerated
        ),
        node_name=words.option("node"),
        host_ports=tuple(
            HostPort(words.whole("port", port), protocol or "TCP") for port, _, protocol in ports
        ),
        allowed_nodes=words.many("allowed"),
        excluded_nodes=words.many("excluded"),
        required_node=words.option("required-node"),
    )


def _preferences(words: Words) -> Preferences:
    terms = [
        PreferredTerm(
            words.whole("prefer", weight), Term((Requirement(key, Operator.IN, (value,)),))
        )
        for each in words.many("prefer")
        for key, value, weight in [_parts(words, "prefer", each, "KEY:VALUE:WEIGHT")]
    ]
    groups = [
        GroupPreference(group, key, words.whole("beside", weight))
        for each in words.many("beside")
        for group, key, weight in [_parts(words, "beside", each, "GROUP:KEY:WEIGHT")]
    ]
    return Preferences(tuple(terms), tuple(groups))


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition(":")
    return key, value


def _instant(words: Words, name: str) -> int | None:
    return START + words.number(name) if name in words.options else None


def _ask(words: Words, name: str, known: Known) -> Event:
    manager, partition = _where(words)
    known.owners[name] = words.next()
    created = _instant(words, "created")
    return AskAdded(manager, name, known.owners[name], _spec(words), partition, created)


def _existing(words: Words, name: str, known: Known) -> Event:
    manager, partition = _where(words)
    known.owners[name] = words.next()
    node = words.next()
    return AllocationAdded(
        manager,
        name,
        known.owners[name],
        node,
        _spec(words),
        partition,
        _instant(words, "created"),
        _instant(words, "started"),
        _mark(words, known.decisions.get(name, "")),
    )


def _mark(words: Words, last: str) -> ReleaseMark | None:
    """Return the facts about a pod's eviction that a line gives by `dying` or `mark=`, or None if the line has neither.

    If the line names the decision as `last`, the result has the id in the argument ``last``.
    """
    if words.flag("dying"):
        return ReleaseMark(Termination.UNKNOWN, "", "", "")
    if not words.option("mark"):
        return None
    parts = words.option("mark").split("/")
    if len(parts) not in {3, 4}:
        raise words.bad("mark", words.option("mark"), "DECISION/BENEFICIARY/NODE[/DELIVERY]")
    decision_id = last if parts[0] == "last" else parts[0]
    return ReleaseMark(Termination.PREEMPTED_BY_SCHEDULER, decision_id, *parts[1:])


def _foreign(words: Words, name: str, known: Known) -> Event:
    known.owners[name] = ""
    manager, partition = _where(words)
    return ForeignAdded(
        manager, name, words.next(), words.resource(), partition, static=words.flag("static")
    )


def _release(words: Words, name: str, known: Known) -> Event:
    manager, partition = _where(words)
    ended = words.next("STOPPED_BY_RM")
    if ended not in Termination.__members__:
        reasons = list(Termination.__members__)
        near = near_matches(ended, reasons)
        raise words.bad("the reason", ended, f"one of {', '.join(reasons)}", near)
    termination = Termination[ended]
    owner = words.option("of", known.owners.get(name, "nobody"))
    return ReleaseRequested(manager, owner, name, partition, termination)


def _confirm(words: Words, name: str, known: Known) -> Event:
    manager, partition = _where(words)
    owner = known.owners.get(name, "nobody")
    return ReleaseRequested(manager, owner, name, partition, Termination.PREEMPTED_BY_SCHEDULER)


def _replaced(words: Words, name: str, known: Known) -> Event:
    manager, partition = _where(words)
    owner = known.owners.get(name, "nobody")
    return ReleaseRequested(manager, owner, name, partition, Termination.PLACEHOLDER_REPLACED)


def _veto(words: Words, name: str, known: Known) -> Event:
    decision = words.option("decision", known.decisions.get(name, "none"))
    return VictimVetoed(words.option("rm", MANAGER), decision, name, "eviction refused")


def _agrees(words: Words, name: str, known: Known) -> Event:
    manager, partition = _where(words)
    return PlanChecked(manager, partition, known.checks.get(name, "none"), fits=True)


def _refuses(words: Words, name: str, known: Known) -> Event:
    manager, partition = _where(words)
    check = known.checks.get(name, "none")
    refused = tuple((key, "no") for key in words.many("of"))
    return PlanChecked(manager, partition, check, fits=False, refused=refused)


def _disruptions(words: Words, name: str, known: Known) -> Event:
    del known
    allowed = words.next()
    return DisruptionsAllowed(
        words.option("rm", MANAGER),
        name,
        None if allowed == "gone" else words.whole("the number", allowed),
    )


def _release_all(words: Words, name: str, known: Known) -> Event:
    del known
    manager, partition = _where(words)
    return ReleaseRequested(manager, name, "", partition)


Verb = Callable[[Words, str, Known], Event]

VERBS: Final[dict[str, Verb]] = {
    "register": _register,
    "synced": _synced,
    "node": _node,
    "resize": _resize,
    "relabel": _relabel,
    "taint": _taint,
    "drain": _on_node(NodeDrained),
    "enable": _on_node(NodeEnabled),
    "remove": _on_node(NodeRemoved),
    "app": _application,
    "retag": _retag,
    "end": _end,
    "ask": _ask,
    "existing": _existing,
    "foreign": _foreign,
    "release": _release,
    "release-all": _release_all,
    "confirm": _confirm,
    "replaced": _replaced,
    "veto": _veto,
    "agrees": _agrees,
    "refuses": _refuses,
    "disruptions": _disruptions,
}
