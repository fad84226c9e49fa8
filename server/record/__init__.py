"""The decision log and the input trace: decisions and inputs as lines that can be checked and replayed.

A record is never the truth about placements: the state is. Nothing here may stop or change scheduling; the core
knows nothing of it.
"""
