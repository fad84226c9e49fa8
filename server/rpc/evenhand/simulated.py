"""The reader of the asks of a simulation.

The reader returns each ask in the form that the core gets, or the reason why the core would refuse the ask.

The reader changes nothing.
"""

from difflib import get_close_matches
from itertools import islice
from typing import Final, NamedTuple

from evenhand.v1 import simulate_pb2 as pb
from server.core.events.applications import QueueLookup
from server.model.asks import AskSpec
from server.model.events import ApplicationAdded
from server.model.phrases import span
from server.rpc import tags
from server.rpc.evenhand.redaction import sees_all
from server.rpc.roles import Caller
from server.rpc.translate.applications import application_batch
from server.rpc.translate.fields import RefusedError, bounded, name
from server.rpc.translate.templates import NO_SPEC, Specs
from server.state.partition import Partition
from server.state.placement_rules import Refused, deciding_rule, place_application
from si.v1 import si_pb2

NAMES_A_NODE: Final = (
    "a viewer's simulated ask may not name nodes ({field}): leave it out, or ask an operator"
)
"""The refusal of a viewer's ask that names a node.

Such asks are refused because a viewer who simulates asks of several sizes on one node could measure the node's free capacity.
"""
_HOST: Final = "kubernetes.io/hostname"
NOT_YOURS: Final = "it would be placed in a queue that is not yours"
NAME_A_QUEUE: Final = "name a leaf queue with --queue; evenhand queues lists them"
CORRECT_IT: Final = "correct it in the file"
NEAR_AMONG: Final = 1_000
"""The largest number of queues among which similar names are searched."""
_SIMULATED: Final = "simulated"
"""The name of the application and of the manager of an ask whose message names no application or no manager."""


class Assumption(NamedTuple):
    """A value that was looked up or assumed for an ask, and the reason."""

    name: str
    value: str
    because: str = ""


class ReadAsk(NamedTuple):
    """An ask as the core gets it. The core does not get an ask with a ``refusal``."""

    message: si_pb2.Allocation
    application_id: str = ""
    queue: str = ""
    spec: AskSpec = NO_SPEC
    refusal: str = ""
    advice: str = ""
    """Advice on how to avoid the refusal."""
    assumed: tuple[Assumption, ...] = ()
    """The values that the answer assumes and that the message does not give."""


class _Unfit(NamedTuple):
    """The reason why a queue takes no asks, and the advice what to do."""

    reason: str
    advice: str


class AskReader:
    """The reader of the asks of one request. It refuses asks for queues that the request's caller may not see."""

    def __init__(self, partition: Partition, caller: Caller) -> None:
        self._partition = partition
        self._caller = caller
        self._specs = Specs()

    def read(self, message: pb.SimulatedAsk) -> ReadAsk:
        """Return the ask with its queue, or its refusal.

        A viewer's ask needs a queue that the viewer sees.
        """
        application_id = message.ask.applicationID or _SIMULATED
        known = ReadAsk(message.ask, application_id)
        field = "" if sees_all(self._caller) else _names_nodes(message.ask)
        if field:
            return known._replace(refusal=NAMES_A_NODE.format(field=field))
        try:
            spec = self._spec(message.ask)
        except RefusedError as refused:
            return known._replace(refusal=str(refused), advice=CORRECT_IT)
        try:
            queue, by = self._queue(message, application_id)
        except RefusedError as refused:
            return known._replace(refusal=str(refused), advice=NAME_A_QUEUE)
        if not sees_all(self._caller) and not self._caller.sees(queue):
            return known._replace(refusal=NOT_YOURS, advice=NAME_A_QUEUE)
        known = known._replace(queue=queue, spec=spec)
        unfit = self._unfit(queue, named=bool(message.queue))
        if unfit:
            return known._replace(refusal=unfit.reason, advice=unfit.advice)
        return known._replace(assumed=self._assumed(message, queue, by, spec))

    def _assumed(
        self, message: pb.SimulatedAsk, path: str, by: str, spec: AskSpec
    ) -> tuple[Assumption, ...]:
        """Return the values that the simulation assumes because the request does not give them."""
        delay = self._partition.queues[path].spec.properties.preemption_delay_ms
        policy = "PreemptLowerPriority" if spec.allow_preempt_other else "Never"
        return (
            Assumption("queue", path, by),
            Assumption("user", message.application.ugi.user or "none", "its limits apply"),
            Assumption("preemptionPolicy", policy),
            Assumption("age", "new", f"preemption.delay of {span(delay)} counts as over"),
        )

    def _spec(self, message: si_pb2.Allocation) -> AskSpec:
        """Return the spec of an ask, checked as a live ask is (see `translate.allocations`).

        Raise RefusedError if a check fails.
        """
        name("allocationKey", message.allocationKey)
        bounded("applicationID", message.applicationID)
        template = self._specs.of_allocation(message)
        if template.refusal:
            raise RefusedError(template.refusal)
        if not template.waits:
            raise RefusedError("resourcePerAlloc: asks for nothing")
        node_id = message.allocationTags.get(tags.REQUIRED_NODE, "")
        return self._specs.on_node(template.spec, node_id) if node_id else template.spec

    def _queue(self, message: pb.SimulatedAsk, application_id: str) -> tuple[str, str]:
        """Return the queue, and why it was chosen.

        The queue is the one that the request names, else the queue of the application, else the queue that the placement rules
        choose.

        Raise RefusedError for a malformed name, and if the placement rules refuse the application. An existing application
        counts only if the caller sees its queue.
        """
        if message.queue:
            return bounded("queue", message.queue).lower(), "named in the request"
        known = self._partition.applications.get(application_id)
        if known is not None and (sees_all(self._caller) or self._caller.sees(known.leaf.path)):
            return known.leaf.path, f"application {application_id} is there already"
        rules, lookup = self._partition.spec.rules, QueueLookup(self._partition)
        application = _application(message.application, application_id, self._partition.name)
        found = place_application(rules, application, lookup)
        if isinstance(found, Refused):
            raise RefusedError(found.reason if sees_all(self._caller) else NOT_YOURS)
        rule = deciding_rule(rules, application, lookup)
        return found.path, f"placement rule `{rule}`" if rule else "the recovery queue"

    def _unfit(self, path: str, *, named: bool) -> _Unfit | None:
        """Return why the queue takes no asks, and what to do.

        Return None if the queue takes asks.
        """
        queue = self._partition.queues.get(path)
        if queue is None and named:
            return _Unfit(f"there is no queue {path}", f"{self._near(path)}{NAME_A_QUEUE}")
        if queue is None:
            reason = (
                f"the placement rules would create the queue {path}, and a simulation creates none"
            )
            return _Unfit(reason, NAME_A_QUEUE)
        if queue.leaf:
            return None
        return _Unfit(
            f"queue {path} is no leaf", f"name a leaf below it, as in --queue {path}.NAME"
        )

    def _near(self, path: str) -> str:
        """Return a hint with the leaves that were probably meant, among those that the caller may see.

        Return "" if no leaf is similar.
        """
        leaves = (
            one.path
            for one in self._partition.queues.values()
            if one.leaf and (sees_all(self._caller) or self._caller.sees(one.path))
        )
        close = get_close_matches(path, islice(leaves, NEAR_AMONG), n=2)
        return f"did you mean {' or '.join(close)}? " if close else ""


def _names_nodes(message: si_pb2.Allocation) -> str:
    """Return the field by which an ask names nodes. A requirement on the label of the host name counts, too.

    Return "" if the ask names no nodes.
    """
    constraints = message.constraints
    terms = constraints.requiredTerms
    fields = {
        "nodeID": message.nodeID,
        tags.REQUIRED_NODE: message.allocationTags.get(tags.REQUIRED_NODE),
        "constraints.nodeName": constraints.nodeName,
        "constraints.allowedNodes": constraints.allowedNodes,
        "constraints.excludedNodes": constraints.excludedNodes,
        "constraints.nodeSelector": _HOST in constraints.nodeSelector,
        "constraints.requiredTerms": any(
            term.matchFields or any(one.key == _HOST for one in term.matchExpressions)
            for term in terms
        ),
    }
    return next((field for field, given in fields.items() if given), "")


def _application(
    message: si_pb2.AddApplicationRequest, application_id: str, partition: str
) -> ApplicationAdded:
    """Return the event for the application, checked as a live application is.

    Raise RefusedError if a check fails.
    """
    announced = si_pb2.AddApplicationRequest()
    announced.CopyFrom(message)
    announced.applicationID, announced.partitionName = application_id, partition
    batch = application_batch(si_pb2.ApplicationRequest(rmID=_SIMULATED, new=[announced]))
    for event in batch.events:
        if isinstance(event, ApplicationAdded):
            return event
    raise RefusedError("; ".join(getattr(one, "reason", "") for one in batch.refusals))
