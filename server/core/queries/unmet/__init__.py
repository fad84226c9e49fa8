"""The unmet-guarantee report: the queues below their entitlement, the cause for each queue, and the smallest change that helps."""
