"""The unmet-guarantee report: which queues lack what they are owed, what stands in the way, what would cure it."""
