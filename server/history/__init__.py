"""The history: usage, waits, allocations, decisions, configurations and fail-overs, kept in a database across restarts (design 7.1).

Nothing here decides or delays anything. The core's process only queues immutable values (`tap`); a thread sends them through a
pipe (`feeder`) to a process of its own (`writing`), which alone writes to the database.
"""
