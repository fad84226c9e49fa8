"""Claims of single asks: on a queue's entitlement, and on less important pods of the same queue (G, I)."""
