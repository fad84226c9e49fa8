"""Asks in Evenhand's own short form: the requested resources, the queue and the priority.

queue: root.research.training
application: train-9
resources: {vcore: 4, memory: 16Gi, nvidia.com/gpu: 1}
priority: 100
count: 3
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from evenhand.v1 import simulate_pb2
from evenhand_cli.asks.documents import ADVICE, Document
from evenhand_cli.asks.simulated import ASKS_MAX, Ask, Options
from shim_client.messages import DEFAULT_PARTITION, ApplicationReport, JobTrigger, PodReport
from shim_client.translate import labels, wire
from shim_client.translate.constraints import node_constraints
from shim_client.translate.fields import BadObjectError
from shim_client.translate.priority import protection
from shim_client.translate.resources import amounts
from si.v1 import si_pb2

APPLICATION = "simulated"
"""The application of asks that name no application."""
UNSAID = "the ask names none: write `priority`, or pass --priority N"
PRIORITY_MIN, PRIORITY_MAX = -(2**31), 2**31 - 1
SHOWN_MAX = 5
"""Maximum number of mistakes of one ask that a fault names."""
_TRIGGERS = {None: JobTrigger.UNSPECIFIED, True: JobTrigger.YES, False: JobTrigger.NO}


class PlainAsk(BaseModel):
    """An ask in the short form; every field except the resources may be left out."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True)

    resources: Annotated[dict[str, str | int | float], Field(min_length=1)]
    name: str = ""
    queue: str = ""
    application: str = APPLICATION
    partition: str = DEFAULT_PARTITION
    namespace: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    priority: Annotated[int | None, Field(ge=PRIORITY_MIN, le=PRIORITY_MAX)] = None
    count: Annotated[int, Field(ge=1, le=ASKS_MAX)] = 1
    may_preempt: bool = True
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[dict[str, Any]] = Field(default_factory=list)
    required_node: str = ""
    job_key: str = ""
    job_members: Annotated[int, Field(ge=0, le=100_000)] = 0
    preemptible: bool | None = None
    """True means a lendable pod, False a firm pod. When the field is not set, the setting of the partition decides (J2)."""
    can_preempt: bool | None = None


def is_plain(document: Document) -> bool:
    """Return whether the document is an ask, or a list of asks, in the short form."""
    return not document.kind and bool({"asks", "resources"} & document.item.keys())


def asks(document: Document, options: Options, first: int) -> Iterator[Ask]:
    """Yield the asks of a document. `first` is the number in the name of the first ask without a name.

    Raises Fault if an ask has an unknown field or an invalid value.
    """
    several = "asks" in document.item
    listed = document.item["asks"] if several else [document.item]
    if not isinstance(listed, list) or (several and len(document.item) > 1):
        raise document.fault("`asks` is a list, and stands alone", ADVICE)
    for number, item in enumerate(listed):
        where = f"asks[{number}]." if several else ""
        yield from _asks(_checked(item, document, where), document, options, first + number)


def _checked(item: object, document: Document, where: str) -> PlainAsk:
    try:
        return PlainAsk.model_validate(item)
    except ValidationError as bad:
        mistakes = [
            f"{where}{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}"
            for one in bad.errors()[:SHOWN_MAX]
        ]
        raise document.fault("this ask cannot be read", "\n".join(mistakes)) from bad


def _asks(written: PlainAsk, document: Document, options: Options, first: int) -> Iterator[Ask]:
    name = written.name or f"ask-{first}"
    try:
        report = _report(written, options)
    except BadObjectError as bad:
        raise document.fault(f"ask `{name}`: {bad}", "correct it") from bad
    namespace = written.namespace or options.namespace
    application = ApplicationReport(
        written.application,
        written.partition,
        written.queue,
        written.user,
        written.groups,
        {labels.TAG_NAMESPACE: namespace},
    )
    for number in range(written.count):
        message = wire.allocation(report)
        message.allocationKey = name if written.count == 1 else f"{name}-{number + 1}"
        asked = _simulated(written, message, wire.application(application), options)
        yield Ask(asked, written.partition, (), (_priority(written, options, message.priority),))


def _priority(written: PlainAsk, options: Options, priority: int) -> simulate_pb2.Assumption:
    """Return the ask's priority, with the text or option from which the priority comes."""
    because = "of the file"
    if written.priority is None:
        because = "--priority" if options.priority is not None else UNSAID
    return simulate_pb2.Assumption(name="priority", value=str(priority), because=because)


def _simulated(
    written: PlainAsk,
    message: si_pb2.Allocation,
    application: si_pb2.AddApplicationRequest,
    options: Options,
) -> simulate_pb2.SimulatedAsk:
    """Return the ask to simulate.

    The option `--queue` takes precedence. A queue that is written as a whole path is used unchanged. Any other queue
    name is passed to the placement rules.
    """
    queue = options.queue or (written.queue if f"{written.queue}.".startswith("root.") else "")
    return simulate_pb2.SimulatedAsk(queue=queue, ask=message, application=application)


def _report(written: PlainAsk, options: Options) -> PodReport:
    """Return the ask as the shim would report a pod.

    Raises BadObjectError if a resource, toleration or selector is invalid.
    """
    spec: dict[str, Any] = {
        "nodeSelector": dict(written.node_selector),
        "tolerations": written.tolerations,
    }
    pinned = {labels.TAG_REQUIRED_NODE: written.required_node} if written.required_node else {}
    priority = options.priority if written.priority is None else written.priority
    return PodReport(
        key=written.name,
        application=written.application,
        partition=written.partition,
        resource=_resource(written.resources),
        priority=priority or 0,
        node="",
        tags=pinned,
        allow_preempt_other=written.may_preempt,
        constraints=node_constraints(spec),
        job_key=written.job_key,
        job_members=written.job_members,
        job_trigger=_TRIGGERS[written.can_preempt],
        protection=protection("", preemptible=written.preemptible, pinned=False),
    )


def _resource(written: Mapping[str, str | int | float]) -> dict[str, int]:
    """Return the amounts of quantities that have the units of queues.yaml, where a vcore is a core.

    The amount of pods is 1 unless another number is given.
    """
    listed = {("cpu" if kind == "vcore" else kind): amount for kind, amount in written.items()}
    return {"pods": 1, **amounts({"resources": listed}, "resources")}
