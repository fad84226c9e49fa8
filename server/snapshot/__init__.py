"""The snapshot of the live state at one instant: frozen columns and facts, and named questions about them."""
