"""The unmet-guarantee report: the queues below their entitlement, what keeps them below it, and what would change that."""
