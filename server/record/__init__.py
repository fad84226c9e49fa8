"""The decision log and the input trace: what was decided and what came in, as lines that can be checked and replayed.

A record is never the truth about placements: the books are. Nothing here may stop or change scheduling; the core
knows nothing of it.
"""
