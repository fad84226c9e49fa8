"""A node in the form that the core receives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shim_client.cluster import ObjectRef
from shim_client.messages import DEFAULT_PARTITION, NodeAction, NodeReport, Taint
from shim_client.translate import labels
from shim_client.translate.fields import BadObjectError, Fields, flag, items, mapping, text, texts
from shim_client.translate.resources import Resource, amounts, interned


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts of one node that the state machine keeps."""

    ref: ObjectRef
    partition: str
    capacity: Resource
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool


def read_node(node: Fields) -> NodeFacts:
    """Return the node's facts; capacity is read from `status.allocatable` only."""
    metadata, spec = mapping(node, "metadata"), mapping(node, "spec")
    name = text(metadata, "name", "metadata.")
    if not name:
        raise BadObjectError("metadata.name", "is missing")
    marks = texts(metadata, "labels", "metadata.")
    return NodeFacts(
        ref=ObjectRef("Node", "", name, text(metadata, "uid", "metadata.")),
        partition=marks.get(labels.PARTITION) or DEFAULT_PARTITION,
        capacity=interned(amounts(mapping(node, "status"), "allocatable", "status.")),
        labels=marks,
        taints=tuple(_taint(item) for item in items(spec, "taints", "spec.")),
        unschedulable=flag(spec, "unschedulable", "spec."),
    )


def node_report(facts: NodeFacts, action: NodeAction) -> NodeReport:
    """Return the report of a node, with only the fields that the core needs for this action."""
    if action not in {NodeAction.CREATE_DRAIN, NodeAction.UPDATE}:
        return NodeReport(facts.ref.name, action, facts.partition, attributes=_attributes(facts))
    return NodeReport(
        node=facts.ref.name,
        action=action,
        partition=facts.partition,
        capacity=facts.capacity,
        attributes=_attributes(facts),
        labels=facts.labels,
        taints=facts.taints,
    )


def _attributes(facts: NodeFacts) -> dict[str, str]:
    return {
        labels.ATTRIBUTE_HOSTNAME: facts.ref.name,
        labels.ATTRIBUTE_RACK: labels.RACK,
        labels.PARTITION: facts.partition,
    }


def _taint(item: Fields) -> Taint:
    where = "spec.taints[]."
    return Taint(text(item, "key", where), text(item, "value", where), text(item, "effect", where))
