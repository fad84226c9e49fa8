"""The sentences about the fit of several asks: how many asks fit, the amounts that nodes lack for the other asks, and the limits without headroom."""

from collections.abc import Iterator, Sequence

from server.core.queries.large_enough import counted_text, excluded_text
from server.model.phrases import agreeing, count, listed, quantities
from server.model.reports import Excluded, GroupFit, LimitFit, NodeFit


def fit_text(fit: GroupFit) -> str:
    """Return a text, for the end of a sentence, with the number of members that fit and the amounts that the other members lack."""
    whom = _whom(fit)
    if not fit.left:
        return f"all {whom} fit now, and the next tick places them"
    fits = agreeing("fit", fit.fitting)
    lead = f"{fit.fitting or 'none'} of the {whom} {fits} now"
    lacks = [_tightest_text(fit)] if fit.limits else []
    if fit.missing:
        lacks.append(_nodes_lack(fit))
    rest = listed(lacks) or "the rest fits once the evicted pods have ended"
    return f"{lead}; {rest}"


def _tightest_text(fit: GroupFit) -> str:
    """Return a text about the limit that has headroom for the fewest members.

    The text has the amounts that this limit lacks for all members together, and the number of other limits that lack an amount
    for all members together.
    """
    text = limit_fit_text(min(fit.limits, key=lambda one: one.members), fit)
    others = len(fit.limits) - 1
    return (
        f"{text} ({count(others, 'other limit')} {agreeing('lack', others)} some, too)"
        if others
        else text
    )


def _whom(fit: GroupFit) -> str:
    return f"{count(fit.looked_at, 'waiting member')} of {fit.name}" if fit.gang else fit.name


def lack_text(fit: GroupFit) -> str:
    """Return a text, for the end of a sentence, about the headroom that a limit lacks, or the amounts that nodes lack, for a single ask.

    Return "" if ``fit`` shows no lack.
    """
    if fit.limits:
        limit = fit.limits[0]
        return f"{_subject(limit)} has no headroom for it and lacks {quantities(limit.missing)}"
    if fit.without_node:
        return none_large_enough(fit.excluded) or f"{_NONE}, even when empty"
    nearest = next((one for one in fit.nodes if one.missing), None)
    if nearest is None:
        return ""
    lacks = quantities(nearest.missing)
    return f"no node has enough free capacity now; node {nearest.node_id} comes nearest and lacks {lacks}"


_NONE = "no node that it may run on is large enough"


def none_large_enough(excluded: Sequence[Excluded]) -> str:
    """Return a text that names the nodes that are large enough for an ask, and says why the ask may not run there.

    Return "" if no node is large enough.
    """
    return f"{_NONE}; {excluded_text(excluded)}" if excluded else ""


def none_large_enough_counted(excluded: Sequence[Excluded]) -> str:
    """Return a text that says how many nodes are large enough for an ask, and why the ask may not run there.

    Return "" if no node is large enough.

    The text has no node names, because it is for callers that may not see the nodes.
    """
    return f"{_NONE}; {counted_text(excluded)}" if excluded else ""


def _nodes_lack(fit: GroupFit) -> str:
    rest = fit.looked_at - fit.on_nodes
    other = "the other one" if rest == 1 else f"the other {rest}"
    others = other if fit.on_nodes else "all of them" if rest > 1 else "it"
    text = f"nodes lack {quantities(fit.missing)} in total for {others}"
    if not fit.without_node:
        return text
    if fit.excluded:
        return f"{text}; {none_large_enough(fit.excluded)}"
    return (
        f"{text}, {fit.without_node} of which no node could hold beside the rest, even when empty"
    )


def limit_fit_text(limit: LimitFit, fit: GroupFit) -> str:
    """Return a text about one limit: for how many members it has headroom, and the amounts that it lacks for all members together."""
    held = f"{limit.members} of the {fit.looked_at}"
    return (
        f"{_subject(limit)} has headroom for {held} and lacks {quantities(limit.missing)} for all"
    )


def _subject(limit: LimitFit) -> str:
    if limit.kind == "queue":
        return f"queue {limit.name}"
    if limit.kind == "firm":
        return f"the guarantee of queue {limit.name}, which bounds firm pods,"
    return f"{limit.kind} {limit.name} in queue {limit.queue}"


def gang_lines(fit: GroupFit) -> Iterator[str]:
    """Yield a sentence for each node of the report, then a sentence about further nodes, and a sentence if some members were not tried."""
    for one in fit.nodes:
        yield f"node {one.node_id} {_node_text(one)}."
    if fit.nodes_left_out:
        yield f"{count(fit.nodes_left_out, 'further node')} would take or nearly take some."
    if fit.looked_at < fit.members:
        yield f"The first {fit.looked_at} of its {count(fit.members, 'member', 'were')} tried."


def _node_text(one: NodeFit) -> str:
    takes = f"takes {count(one.members, 'member')} now" if one.members else "takes no member now"
    if not one.missing:
        return takes
    return f"{takes} and lacks {quantities(one.missing)} for {one.rest} more"
