"""Who may have room before it is free, and who goes for it: policies, one planner, one set of laws (design 1.5-1.7)."""
