"""Benchmarks: `make bench`. The figures never pass or fail a test; tests only check that the benchmarks work."""
