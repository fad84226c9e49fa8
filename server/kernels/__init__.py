"""Numeric kernels: functions from int64 arrays to int64 arrays, without terms of scheduling.

For each kernel, the tests have a plain Python function that must return the same results.
"""
