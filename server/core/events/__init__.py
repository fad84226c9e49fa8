"""The events, one module per subject: the change that each event makes to the state."""
