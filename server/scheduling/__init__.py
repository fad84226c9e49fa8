"""Placement: the choice of the next ask, the choice of its node, and the cycle that repeats both until nothing fits."""
