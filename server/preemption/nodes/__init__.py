"""Policies for the capacity of one node: preemption for a pod that requires the node, and reservations without evictions."""
