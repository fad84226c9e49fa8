"""The invariants of the state. Each check computes a value again from the data that the value summarizes (design 5)."""
