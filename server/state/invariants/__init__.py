"""The invariants of the books, each recomputed from what stands below it (design 5, specification 8)."""
