"""Preemption: the choice of the asks that are promised capacity, and of the pods that are evicted for them (design 1.5-1.7).

Policies propose plans from a snapshot. One planner collects the plans of all policies, and checks each plan against one set of
rules.
"""
