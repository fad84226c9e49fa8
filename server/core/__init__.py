"""The core of the scheduler: events in, decisions out, time as an argument."""
