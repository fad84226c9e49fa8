"""The history: usage, waits, allocations, decisions, configurations and fail-overs, kept in a database across restarts (design 7.1).

The history decides nothing and delays nothing. The core only queues immutable values (`tap`). A thread of the core's process
sends these values through a pipe (`feeder`) to a second process (`writing`). Only that process writes to the database.
"""
