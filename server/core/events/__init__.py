"""The events: the change that each makes to the state, by subject."""
