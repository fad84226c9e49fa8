"""Capacity of one node: for a pod that requires that node, and for an ask that is too large for what others leave free."""
