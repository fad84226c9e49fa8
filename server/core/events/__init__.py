"""The events: what each does to the state, by subject."""
