"""Preemption for the capacity of one node: for a pod that requires the node, and for an ask that is larger than any node's free capacity."""
