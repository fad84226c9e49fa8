"""The remedies of the unmet-guarantee report compared with brute force: each one helps, and no smaller one does."""

from collections import Counter
from copy import deepcopy
from typing import Final

import pytest

from server.core.core import Core
from server.core.queries.unmet.report import report
from server.model.unmet import Binding, Change, Cure, UnmetAsks
from tests.effort import TRIES_ALL, cases
from tests.preemption.claim_clusters import START, Dice, configuration, events
from tests.preemption.claim_oracle import (
    Amounts,
    Ask,
    Cluster,
    Node,
    best,
    fits_now,
    refused,
    scope_root,
)
from tests.preemption.paths import is_below

CLUSTERS: Final = cases(500)
CLUSTERS_SOAK: Final = 20_000
CHUNK: Final = 1_000


def judge(seed: int) -> Counter[str]:
    """One random cluster; how many cures of each kind it had."""
    cluster = Dice(seed, pods_most=6).cluster()
    core = Core(configuration(cluster))
    for event in events(cluster):
        core.handle(event, START)
    before = core.digest()
    found = report(core, "default", START)
    assert core.digest() == before, f"seed {seed}: the report changed the state"
    counts: Counter[str] = Counter()
    for queue in found.queues:
        for asks in queue.asks:
            ask = next(one for one in cluster.asks if one.key == asks.key)
            assert asks.searched, f"seed {seed}: the budget was spent on a cluster of toys"
            _check(seed, cluster, ask, asks)
            counts[asks.binding.value if asks.cure is None else asks.cure.change.value] += 1
    return counts


def _check(seed: int, cluster: Cluster, ask: Ask, asks: UnmetAsks) -> None:
    where = f"seed {seed}: {ask.key} of {ask.queue}, {asks.binding}, {asks.cure}, in {cluster}"
    if asks.binding is Binding.SERVED:
        assert _helped(cluster, ask) or ask.required_node, where
        return
    assert not _helped(cluster, ask), where
    if asks.cure is None:
        assert not _helped(*_add_node(cluster, ask)), where
        return
    if asks.cure.change is Change.SETTING and asks.cure.subject == "crossnode":
        return  # brute force stays on one node
    assert _helped(*_changed(cluster, ask, asks.cure)), where
    for less in _one_less(cluster, asks.cure):
        assert not _helped(*_changed(cluster, ask, less)), f"{less} helps, too: {where}"
    if asks.cure.change in {Change.ADD_NODE, Change.UNCORDON}:
        _check_nothing_smaller(cluster, ask, where)


def _helped(cluster: Cluster, ask: Ask) -> bool:
    return fits_now(cluster, ask) or best(cluster, ask) is not None


def _changed(cluster: Cluster, ask: Ask, cure: Cure) -> tuple[Cluster, Ask]:
    """Return the cluster with the change applied by hand."""
    after, asking = deepcopy(cluster), deepcopy(ask)
    if not (_of_queue(after, cure) or _of_setting(after, cure) or _of_node(after, cure)):
        _of_ask(asking, cure)
    return after, asking


def _of_queue(after: Cluster, cure: Cure) -> bool:
    match cure.change:
        case Change.RAISE_MAX:
            most = after.queue(cure.subject).max
            assert most is not None
            most.update(_sum(most, cure.amounts, 1))
        case Change.RAISE_GUARANTEE | Change.LOWER_GUARANTEE:
            queue = after.queue(cure.subject)
            sign = 1 if cure.change is Change.RAISE_GUARANTEE else -1
            queue.guaranteed = {**queue.guaranteed, **_sum(queue.guaranteed, cure.amounts, sign)}
        case Change.LIFT_FENCE | Change.ENABLE_QUEUE:
            after.queue(cure.subject).policy = "default"
        case _:
            return False
    return True


def _of_setting(after: Cluster, cure: Cure) -> bool:
    if cure.change is not Change.SETTING:
        return False
    if cure.subject == "disruptionbudgets":
        after.budgets = "prefer"
    else:
        assert cure.subject == "equalpriority", cure
        after.equal_priority = "allow"
    return True


def _of_node(after: Cluster, cure: Cure) -> bool:
    if cure.change is Change.ADD_NODE:
        after.nodes.append(Node("new", dict(cure.amounts)))
    elif cure.change is Change.UNCORDON:
        next(node for node in after.nodes if node.name == cure.subject).schedulable = True
    else:
        return False
    return True


def _of_ask(asking: Ask, cure: Cure) -> None:
    if cure.change is Change.RAISE_PRIORITY:
        asking.priority = cure.amounts["priority"]
    else:
        assert cure.change is Change.ALLOW_PREEMPTION, cure
        asking.may_preempt = True


def _sum(before: Amounts, change: object, sign: int) -> Amounts:
    assert isinstance(change, dict)
    return {kind: before.get(kind, 0) + sign * amount for kind, amount in change.items()}


def _one_less(cluster: Cluster, cure: Cure) -> list[Cure]:
    """Return the change with one unit less of one type."""
    of_amounts = {
        Change.RAISE_MAX,
        Change.RAISE_GUARANTEE,
        Change.LOWER_GUARANTEE,
        Change.RAISE_PRIORITY,
    }
    if cure.change not in of_amounts:
        return []
    return [
        Cure(cure.change, cure.subject, "", {**cure.amounts, kind: amount - 1})
        for kind, amount in cure.amounts.items()
        if _may_be(cluster, cure, kind, amount - 1)
    ]


def _may_be(cluster: Cluster, cure: Cure, kind: str, less: int) -> bool:
    """Return whether `config apply` takes a guarantee lowered by less, given the guarantees of the queues below."""
    if cure.change is not Change.LOWER_GUARANTEE:
        return True
    return cluster.queue(cure.subject).guaranteed[kind] - less >= _parts(
        cluster, cure.subject, kind
    )


def _parts(cluster: Cluster, path: str, kind: str) -> int:
    """Return what the queues below a queue are guaranteed together, each by its own amount or by those below it."""
    below = [one for one in cluster.queues if one.path.rpartition(".")[0] == path]
    return sum(one.guaranteed.get(kind, 0) or _parts(cluster, one.path, kind) for one in below)


def _add_node(cluster: Cluster, ask: Ask) -> tuple[Cluster, Ask]:
    return _changed(cluster, ask, Cure(Change.ADD_NODE, "", "", dict(ask.size)))


def _check_nothing_smaller(cluster: Cluster, ask: Ask, where: str) -> None:
    """No queue's guarantee, fence or switch alone would have done."""
    if refused(cluster, ask) not in {"", "G2: nobody decides"}:
        return
    for queue in cluster.queues[1:]:
        if queue.guaranteed and not is_below(ask.queue, queue.path):
            less = deepcopy(cluster)
            less.queue(queue.path).guaranteed = {}
            assert not _helped(less, ask), (
                f"without the guarantee of {queue.path} it helps: {where}"
            )
    open_ = deepcopy(cluster)
    open_.queue(scope_root(cluster, ask.queue)).policy = "default"
    assert not _helped(open_, ask), f"without its fence it helps: {where}"


def test_cures_help_and_are_the_least_that_does() -> None:
    found: Counter[str] = Counter()
    for seed in range(CLUSTERS):
        found += judge(seed)
    kinds = {
        Change.LOWER_GUARANTEE,
        Change.RAISE_GUARANTEE,
        Change.RAISE_MAX,
        Change.RAISE_PRIORITY,
        Change.LIFT_FENCE,
        Change.ENABLE_QUEUE,
        Change.ADD_NODE,
    }
    if TRIES_ALL:
        assert min(found[kind] for kind in kinds) >= CLUSTERS // 150, found


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CLUSTERS_SOAK // CHUNK))
def test_cures_of_very_many_clusters(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        judge(seed)
