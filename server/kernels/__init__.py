"""Numeric kernels: functions from int64 arrays to int64 arrays, without terms of scheduling.

For each kernel, the tests have a twin in plain Python.
"""
