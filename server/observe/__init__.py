"""Metrics, traces and logs: made of decisions and of what the core shows, outside the core. Nothing is decided here."""
