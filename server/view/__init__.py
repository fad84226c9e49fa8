"""What the books look like at one instant: frozen columns and facts, and named questions about them."""
