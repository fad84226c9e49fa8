"""Pods of a gang or another workload that all have a node: their nodes, their protection, and why they may be evicted."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from evenhand.v1 import explain_pb2, inspect_pb2
from evenhand_cli.render.amounts import phrase, span
from evenhand_cli.render.columns import facts
from evenhand_cli.render.fits import NextSteps, Pointer
from evenhand_cli.render.tables import pod_name
from evenhand_cli.render.words import plural, some
from server.model.phrases import agreeing

NODES_NAMED_MAX = 4
SENTENCES_MAX = 5
"""Maximum number of different sentences about the pods.

Sentences about only some pods come first. `--all` shows all.
"""
PODS_NAMED_MAX = 3
_OF_FACTS = ("It has run on", "It uses ")
"""Beginnings of the sentences that only repeat facts of the table."""
NOT_NEEDED = "not-needed"
LEAVING = inspect_pb2.ALLOCATION_STATE_RELEASING


class Workload(NamedTuple):
    """Pods that have a node. `answers` explains the first of these pods, up to a limited number."""

    name: str
    is_gang: bool
    pods: Sequence[inspect_pb2.Allocation]
    answers: Sequence[explain_pb2.ExplainResponse]


def workload(found: Workload, *, full: bool = False, also: Pointer | None = None) -> RenderableType:
    """Return one answer for all pods; a sentence that is true of several pods is shown once.

    `also` is a last line about another object with this name.
    """
    first = found.answers[0]
    kind = "gang" if found.is_gang else "pods"
    title = Text.assemble((found.name, "key"), (f"  {kind}", "heading"))
    title.append(f"  partition {first.partition}", style="faint")
    whom = next((one for one in found.pods if one.state == LEAVING), found.pods[0])
    return Group(
        title,
        Padding(Text(_summary(found)), (0, 0, 0, 2), expand=False),
        NextSteps([f"evenhand explain {_name(whom)}: about one of them"]),
        Text(),
        facts([*_facts(found), *_sentences(found, full=full)]),
        *([also] if also else []),
    )


def _summary(found: Workload) -> str:
    leaving = sum(one.state == LEAVING for one in found.pods)
    total, running = len(found.pods), len(found.pods) - leaving
    nodes = plural(len({one.node_id for one in found.pods}), "node")
    if not leaving:
        what = "The only pod runs" if total == 1 else f"All {plural(total, 'pod', 'run')}"
        return f"{what}, on {nodes}; none waits."
    return f"{running:,} of {plural(total, 'pod')} {agreeing('run', running)} on; {leaving:,} {agreeing('end', leaving)}. None waits."


def _facts(found: Workload) -> Iterator[tuple[str, str | Text]]:
    nodes = Counter(one.node_id for one in found.pods).most_common()
    shown = [f"{node} ({pods:,})" for node, pods in nodes]
    yield "nodes", some(shown, NODES_NAMED_MAX)
    places = dict.fromkeys(f"{one.queue}, application {one.application_id}" for one in found.pods)
    yield "queue", some(list(places), 2)
    sizes = Counter(f"{phrase(one.resources)}; priority {one.priority}" for one in found.pods)
    for size, pods in sizes.most_common(2):
        yield "each holds" if len(sizes) == 1 else f"{pods:,} hold", size
    now = found.answers[0].taken_at_ms
    since = sorted(one.since_ms for one in found.pods)
    shortest, longest = span(now - since[-1]), span(now - since[0])
    at_least = "at least " if any(one.since_at_the_latest for one in found.pods) else ""
    yield "run for", at_least + (longest if shortest == longest else f"{shortest} to {longest}")


def _sentences(found: Workload, *, full: bool) -> Iterator[tuple[str, str | Text]]:
    """Yield each sentence about the pods once, with the number of pods for which the sentence is true.

    Sentences about only some pods come first, the most frequent first. Sentences about all pods come last. Without
    ``full`` only the first SENTENCES_MAX are shown. Sentences that repeat the table's facts (how long a pod has run,
    what it uses) are left out, and so are sentences that give a pod's place in an order.
    """
    total = len(found.answers)
    pods: dict[str, list[str]] = {}
    for one in found.answers:
        for line in dict.fromkeys(_told(one)):
            pods.setdefault(line, []).append(one.name or one.key)
    ranked = sorted(pods.items(), key=lambda each: (len(each[1]) == total, -len(each[1])))
    shown = ranked if full else ranked[:SENTENCES_MAX]
    for line, names in shown:
        if len(names) == total:
            yield "each", line
        else:
            yield f"{len(names):,} of {total:,}", f"{line} ({some(names, PODS_NAMED_MAX)})"
    if len(ranked) > len(shown):
        yield "", f"{plural(len(ranked) - len(shown), 'more sentence')}: --all"
    if len(found.pods) > total:
        yield "", f"the first {total:,} of {plural(len(found.pods), 'pod', 'were')} looked at"


def _told(answer: explain_pb2.ExplainResponse) -> Iterator[str]:
    """Yield the sentences about one pod.

    Sentences that repeat facts, or give the pod's place in an order, are left out.
    """
    placed = answer.placed
    ranked = {one.sentence for one in placed.quota_outlook}
    ranked.update(one.sentence for one in placed.not_evicted)
    for one in placed.quota_outlook:
        yield _outlook(one, answer.taken_at_ms)
    for line in answer.lines:
        if line not in ranked and not line.startswith(_OF_FACTS):
            yield line
    for other in placed.not_evicted:
        why = f"{other.rule} (`{other.law}`)" if other.law else "why is not known any more"
        yield f"Decision {other.decision_id} did not evict it: {why}."


def _outlook(one: explain_pb2.QuotaOutlook, now: int) -> str:
    over = f"{phrase(one.over)} " if one.over else ""
    starts = f"in {span(one.due_ms - now)}" if one.due_ms > now else "now"
    only = ", but the partition only observes" if one.observed else ""
    lead = f"Queue {one.queue} is {over}over its max; enforcement starts {starts}{only}:"
    if one.evicted:
        return f"{lead} it would be evicted."
    if one.law == NOT_NEEDED:
        others = plural(one.victims, "other pod")
        return f"{lead} it would keep running, as the eviction of {others} is enough."
    return f"{lead} it would keep running{f', {one.rule} (`{one.law}`)' if one.law else ''}."


def _name(pod: inspect_pb2.Allocation) -> str:
    return pod_name(pod) or pod.allocation_key
