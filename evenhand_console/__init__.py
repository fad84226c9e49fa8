"""The web console: a client of the core's wire that shows its answers as pages."""
