"""Placement: which ask is next, which node takes it, and the cycle that repeats this until nothing fits."""
