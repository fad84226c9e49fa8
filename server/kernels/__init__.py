"""Numeric kernels: functions from int64 arrays to int64 arrays, without terms of scheduling. The tests have a plain-Python twin of each."""
