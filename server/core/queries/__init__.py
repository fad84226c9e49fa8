"""The read side: reports, explanations and simulations. No query changes the state."""
