"""The conversion of a file to asks, document by document."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from evenhand_cli.asks import documents, plain, pods
from evenhand_cli.asks.classes import Classes
from evenhand_cli.asks.documents import ADVICE, Document
from evenhand_cli.asks.simulated import ASKS_MAX, Ask, Options
from evenhand_cli.faults import Fault
from shim_client.translate.applications import NamespaceFacts, read_namespace
from shim_client.translate.fields import BadObjectError

ONE_POD = "simulate one of its pods: kubectl get pod NAME -o yaml | evenhand simulate ask -"


@dataclass(slots=True)
class Reading:
    """The asks of a file.

    `ignored` has the number of objects by kind, for kinds that do not affect placement.
    """

    asks: list[Ask] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)


def read_asks(path: Path, options: Options, more: Path | None = None) -> Reading:
    """Return the asks of a file in the order of the file; `more` is a file with additional PriorityClasses.

    Raises Fault if a file cannot be read, if an object is invalid, or if no ask is found.
    """
    found = documents.read(path)
    return asks_of(found, str(path), options, documents.read(more) if more is not None else ())


def asks_of(
    found: list[Document], name: str, options: Options, more: Iterable[Document] = ()
) -> Reading:
    """Return the asks of the given objects, in the order of these objects.

    `name` is the name of the text in messages, and `more` has further PriorityClasses.

    Raises Fault if an object is invalid, or if no ask is found.
    """
    classes, namespaces = Classes(options), _namespaces(found)
    for document in [*found, *more]:
        if document.kind == "PriorityClass":
            classes.add(document)
    reading = Reading()
    for document in found:
        for ask in _asks(document, classes, namespaces, reading):
            _take(ask, document, reading)
    if not reading.asks:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(reading.ignored.items()))
        raise Fault(
            f"{name} holds no pod and no ask{f', only {kinds}' if kinds else ''}",
            where=documents.WHERE,
            advice=ONE_POD if kinds else ADVICE,
        )
    return reading


def _namespaces(found: list[Document]) -> dict[str, NamespaceFacts]:
    known: dict[str, NamespaceFacts] = {}
    for document in found:
        if document.kind == "Namespace":
            try:
                facts = read_namespace(document.item)
            except BadObjectError as bad:
                raise document.fault(f"Namespace: {bad}", "correct it") from bad
            known[facts.name] = facts
    return known


def _asks(
    document: Document,
    classes: Classes,
    namespaces: dict[str, NamespaceFacts],
    reading: Reading,
) -> Iterator[Ask]:
    options, kind = classes.options, document.kind
    if plain.is_plain(document):
        yield from plain.asks(document, options, len(reading.asks) + 1)
    elif kind == "Pod" or kind in pods.WORKLOADS:
        for pod in pods.pods(document, options.namespace, ASKS_MAX + 1):
            yield pods.ask(pod, classes, namespaces, options)
    elif kind == pods.PER_NODE:
        raise document.fault(
            "a DaemonSet has a pod for each node: which of them is meant?",
            ONE_POD,
        )
    elif not kind:
        raise document.fault("this is neither a Kubernetes object nor an ask", ADVICE)
    elif kind not in ("PriorityClass", "Namespace"):
        reading.ignored[kind] += 1


def _take(ask: Ask, document: Document, reading: Reading) -> None:
    if len(reading.asks) == ASKS_MAX:
        raise document.fault(
            f"these are more than {ASKS_MAX:,} asks",
            "simulate fewer at a time: what those before them get is seen by those after",
        )
    reading.asks.append(ask)
