"""Preemption over time: rounds, the asks that are due, the plans that are carried out, and the decisions that are open."""
