"""The dashboards of Evenhand as code: cluster, queue, preemption, and the core itself."""

from collections.abc import Mapping
from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from scripts.monitoring.panels import (
    CORE,
    PARTITION,
    QUEUE,
    Query,
    board,
    lines,
    number,
    quantiles,
)

_LEADS: Final = f'{CORE}, state="leader"'
_RATE: Final = "[$__rate_interval]"


def cluster() -> Dashboard:
    """Return the dashboard of whole partitions: what runs, what waits, and why."""
    made = board("cluster", "cluster", "What runs, what waits, and why", ["partition"])
    for title, text, metric in (
        ("Nodes", "Nodes of the chosen partitions", "evenhand_nodes"),
        ("Applications", "Applications of the chosen partitions", "evenhand_applications"),
        ("Running pods", "Pods that this scheduler placed", "evenhand_allocations"),
    ):
        by_partition = f"sum(max by (partition) ({metric}{{{PARTITION}}}))"
        made = made.with_panel(number(title, text, by_partition))
    waiting = f"max by (partition, code) (evenhand_waiting_asks{{{PARTITION}}})"
    made = made.with_panel(number("Waiting pods", "Pods without a node", f"sum({waiting})"))
    unmet = f"max by (partition, queue) (evenhand_guarantee_unmet_since_timestamp_seconds{{{PARTITION}}})"
    over = f"max by (partition, queue) (evenhand_queue_over_max{{{PARTITION}}}) > 0"
    for title, text, query in (
        ("Unmet guarantees", "Queues below their guarantee while their pods wait", unmet),
        ("Queues over max", "Queues that use more than their max", over),
    ):
        made = made.with_panel(number(title, text, f"count({query}) or vector(0)"))
    panels = (
        lines(
            "Waiting pods by reason",
            "The reason codes are in the user guide",
            [Query(f"sum by (code) ({waiting})", "{{code}}")],
        ),
        lines(
            "Placements and releases",
            "Pods a second",
            [
                Query(
                    _rate("evenhand_placements_total", PARTITION, "partition"),
                    "{{partition}} placed",
                ),
                Query(
                    _rate("evenhand_releases_total", PARTITION, "partition, termination"),
                    "{{partition}} released, {{termination}}",
                ),
            ],
        ),
        quantiles(
            "Waits by reason",
            "From the creation of a pod until its placement, by the reason reported last",
            "evenhand_wait_seconds",
            PARTITION,
            "code",
        ),
        lines(
            "Refused objects",
            "Objects a second that the core refused",
            [Query(_rate("evenhand_rejections_total", CORE, "kind"), "{{kind}}")],
        ),
    )
    for panel in panels:
        made = made.with_panel(panel)
    return made


def queue() -> Dashboard:
    """Return the dashboard of chosen queues: usage beside what is set, waits, and lost work."""
    made = board("queue", "queue", "Usage, waits and lost work of queues", ["partition", "queue"])
    for resource, unit in (("vcore", "short"), ("memory", "bytes")):
        where = f'{QUEUE}, resource="{resource}"'
        scale = " / 1000" if resource == "vcore" else ""
        queries = [
            Query(
                f"max by (queue) (evenhand_queue_{name}{{{where}}}){scale}", f"{{{{queue}}}} {name}"
            )
            for name in ("usage", "guaranteed", "max", "deserved", "promised", "releasing")
        ]
        word = "CPU in cores" if resource == "vcore" else "Memory"
        made = made.with_panel(
            lines(word, "Usage beside guarantee, max, deserved share and promises", queries, unit)
        )
    since = f"max by (queue) (evenhand_guarantee_unmet_since_timestamp_seconds{{{QUEUE}}})"
    over = f"max by (queue, resource) (evenhand_queue_over_max{{{QUEUE}}})"
    panels = (
        quantiles(
            "Waits", "From creation until placement", "evenhand_wait_seconds", QUEUE, "queue"
        ),
        lines(
            "Placements by what the pods waited for",
            "Pods a second, by the reason reported last; none: placed at once",
            [
                Query(
                    _rate("evenhand_wait_seconds_count", QUEUE, "queue, code"), "{{queue}} {{code}}"
                )
            ],
        ),
        lines(
            "Unmet guarantee", "For how long now", [Query(f"time() - {since}", "{{queue}}")], "s"
        ),
        quantiles(
            "Time until a guarantee is met",
            "How long guarantees that are met again were unmet",
            "evenhand_guarantee_unmet_seconds",
            QUEUE,
            "queue",
        ),
        lines("Over max", "Usage above max", [Query(over, "{{queue}} {{resource}}")]),
        quantiles(
            "Lost work",
            "How long evicted pods of the queue had run",
            "evenhand_lost_work_seconds",
            QUEUE,
            "queue",
        ),
    )
    for panel in panels:
        made = made.with_panel(panel)
    return made


def preemption() -> Dashboard:
    """Return the dashboard of preemption: decisions, how long they take, how they end, and what they cost."""
    made = board(
        "preemption", "preemption", "Decisions of preemption and their cost", ["partition"]
    )
    victims = _rate("evenhand_victims_total", PARTITION, "policy")
    lost = _rate("evenhand_lost_core_seconds_total", PARTITION, "claimant, victim")
    panels = (
        lines(
            "Decisions",
            "Decisions a second, by policy",
            [Query(_rate("evenhand_decisions_total", PARTITION, "policy"), "{{policy}}")],
        ),
        lines("Victims", "Evicted pods a second, by policy", [Query(victims, "{{policy}}")]),
        lines(
            "Open decisions",
            "Decisions whose pods do not have their places yet",
            [Query(f"max by (policy) (evenhand_open_decisions{{{PARTITION}}})", "{{policy}}")],
        ),
        quantiles(
            "Time to preempt",
            "From a decision until it is fulfilled",
            "evenhand_preemption_seconds",
            PARTITION,
            "policy",
        ),
        lines(
            "Lost cores",
            "Core-seconds lost a second, by queues",
            [Query(lost, "{{victim}} for {{claimant}}")],
        ),
        quantiles(
            "Lost work of a victim",
            "How long evicted pods had run",
            "evenhand_lost_work_seconds",
            PARTITION,
            "policy",
        ),
        lines(
            "Notes for administrators",
            "Notes a second, by code: refusals, vetoes, expiries, defects",
            [Query(_rate("evenhand_notices_total", PARTITION, "code"), "{{code}}")],
        ),
        lines(
            "Withdrawn evictions and frozen pairs",
            "Marked victims that stay, a second; pairs that the guard against thrashing stopped",
            [
                Query(
                    _rate("evenhand_withdrawals_total", PARTITION, "partition"),
                    "{{partition}} withdrawn",
                ),
                Query(
                    f"max by (partition) (evenhand_frozen_pairs{{{PARTITION}}})",
                    "{{partition}} frozen",
                ),
            ],
        ),
        lines(
            "Shadow",
            "Decisions a second of the shadow and of the settings in force, by difference",
            [Query(_rate("evenhand_shadow_total", PARTITION, "difference"), "{{difference}}")],
        ),
    )
    for panel in panels:
        made = made.with_panel(panel)
    return made


def core() -> Dashboard:
    """Return the dashboard of the core itself: slices, streams, shims, followers, records and secrets."""
    made = board("core", "core", "The core itself: speed, shims, followers, records", [])
    for title, text, query, unit in (
        (
            "Leaders",
            "Cores that lead: one for each group",
            f"sum(evenhand_replica_state{{{_LEADS}}})",
            "short",
        ),
        (
            "Groups without a leader",
            "Has to be 0",
            f"count((max by (group) (evenhand_core_group{{{CORE}}}) == 0"
            f" or max by (group) ({_grouped('replica_state', _LEADS)}) == 0)"
            f' unless on () evenhand_core_group{{{CORE}, group=""}} == 1) or vector(0)',
            "short",
        ),
        ("Shims that lead", "Has to be 1", "sum(evenhand_shim_leader)", "short"),
        ("Lease", "Seconds left", "max(evenhand_shim_lease_seconds_left)", "s"),
        ("Epoch", "Epoch of the shim that leads", "max(evenhand_shim_epoch)", "short"),
        (
            "Certificate",
            "Time until it expires",
            f"min(evenhand_certificate_expires_seconds{{{CORE}}}) - time()",
            "s",
        ),
        (
            "Differences",
            "Has to be 0",
            f"max(evenhand_replica_differences_total{{{CORE}}})",
            "short",
        ),
    ):
        made = made.with_panel(number(title, text, query, unit))
    panels = (
        quantiles(
            "Time of a slice",
            "Events, decisions, answers",
            "evenhand_tick_seconds",
            CORE,
            "instance",
        ),
        lines(
            "Events",
            "Objects a second that arrive",
            [Query(_rate("evenhand_events_total", CORE, "instance"), "{{instance}}")],
        ),
        lines(
            "Waiting for streams",
            "Decisions that a client has not read",
            _each("stream_depth", "manager, stream"),
        ),
        lines(
            "Shims",
            "Connected, and synchronised: 1 is yes",
            [*_each_group("manager_connected"), *_each_group("manager_synced")],
        ),
        lines(
            "Silence of shims",
            "Since the last message",
            _each("manager_silent_seconds", "manager"),
            "s",
        ),
        lines(
            "Lag of a follower",
            "Since it had all input",
            _each("replica_lag_seconds", "instance"),
            "s",
        ),
        lines(
            "Input behind the leader",
            "Events and ticks, as the follower and as the leader see it",
            [*_each("replica_lag_inputs", "instance"), *_each("follower_lag_inputs", "follower")],
        ),
        lines(
            "Backlog of followers",
            "Cut off at 64 MiB",
            _each("follower_backlog_bytes", "follower"),
            "bytes",
        ),
        lines(
            "Followers that joined again",
            "Times since the start",
            [
                *_each("replica_joins_total", "instance"),
                *_each("followers_cut_off_total", "instance"),
            ],
        ),
        lines(
            "Records",
            "1 while a record cannot be written; gaps since the start",
            [*_each("record_failing", "record"), *_each("record_gaps_total", "record")],
        ),
        lines(
            "Refused secrets", "1 while a new file cannot be used", _each("secret_failing", "kind")
        ),
        lines(
            "Lines of histograms",
            "1,000 at most; further queues are counted as other",
            _each("metric_lines", "metric"),
        ),
    )
    for panel in panels:
        made = made.with_panel(panel)
    return made


def _rate(metric: str, where: str, by: str) -> str:
    return f"max by ({by}) (rate({metric}{{{where}}}{_RATE}))"


def _each(metric: str, by: str) -> list[Query]:
    """Return the query of a gauge of the core, one line for each value of the labels."""
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))
    return [Query(f"max by ({by}) (evenhand_{metric}{{{CORE}}})", f"{legend} {metric}")]


def _each_group(metric: str) -> list[Query]:
    """Return the query of a gauge about managers, one line for each group of cores: a manager has a session with each group."""
    query = f"max by (group, manager) ({_grouped(metric, CORE)})"
    return [Query(query, f"{{{{manager}}}} {{{{group}}}} {metric}")]


def _grouped(metric: str, labels: str) -> str:
    """Return a gauge of each core, with the core's group as a label."""
    own = f"evenhand_core_group{{{CORE}}} == 1"
    return f"evenhand_{metric}{{{labels}}} * on (job, instance) group_left (group) ({own})"


def files() -> Mapping[str, str]:
    """Return the text of each dashboard in Grafana's JSON, by the name of its file."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    boards = {"cluster": cluster, "queue": queue, "preemption": preemption, "core": core}
    return {f"{name}.json": encoder.encode(make().build()) + "\n" for name, make in boards.items()}
