"""Benchmarks: `make bench`. Never part of the tests, never a pass or a fail."""
