"""The invariants of the state, each recomputed from what stands below it (design 5, specification 8)."""
