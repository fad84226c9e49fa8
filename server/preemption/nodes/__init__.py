"""Capacity of one node: for a pod that requires it, and for an ask that is too large for what others leave over."""
