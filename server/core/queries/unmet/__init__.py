"""The unmet-guarantee report: the queues below their entitlement, what keeps them there, what would cure it."""
