"""The invariants of the state. Each check recomputes a value from the data that it summarizes (design 5)."""
