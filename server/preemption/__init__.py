"""Preemption: which asks are promised capacity before it is free, and which pods are evicted for them (design 1.5-1.7).

Policies propose plans from a snapshot. One planner collects the plans, and one set of rules checks each plan.
"""
