"""The read side: reports, explanations and simulations. Nothing here changes anything."""
