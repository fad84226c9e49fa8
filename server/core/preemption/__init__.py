"""Preemption over time: rounds, the asks that are due, the application of plans, and open decisions."""
