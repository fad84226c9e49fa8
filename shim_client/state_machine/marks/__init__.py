"""The annotations, labels and events with which the shim marks victims and informs about evictions."""
