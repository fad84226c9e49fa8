"""The rules that each plan must keep, whichever policy made it (design 1.6)."""
