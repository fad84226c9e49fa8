"""The snapshot of the live state at one instant: frozen columns and facts, and functions that answer questions about them."""
