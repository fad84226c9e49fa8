"""The decision log and the input trace: decisions and inputs as lines that can be checked and replayed.

A record does not say where pods run. Only the live state says that. No code in this package may stop or change scheduling, and
the core does not know of the package.
"""
