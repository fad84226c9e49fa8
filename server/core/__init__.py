"""The core of the scheduler: it gets events and the time as arguments, and returns decisions."""
