"""Stories: a configuration, and steps of events on simulated time.

Each step shows the core's decisions, and may state expected decisions.
"""
