"""Metrics, traces and logs, made outside the core from its decisions and reports. No scheduling decision is made here."""
