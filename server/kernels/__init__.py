"""Numeric kernels: arrays in, arrays out, int64, without words of the domain. The tests have a plain-Python twin of each."""
