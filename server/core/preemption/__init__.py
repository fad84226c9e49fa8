"""Preemption over time: rounds, asks that are due, plans that are carried out, and open decisions."""
