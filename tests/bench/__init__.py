"""Benchmarks: `make bench`. How fast anything is never passes or fails a test; only that they work is tested."""
