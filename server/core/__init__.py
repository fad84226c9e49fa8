"""The one door of the scheduler: events in, decisions out, time as an argument."""
