"""The link to the core: registration, three streams, batching, reconnection; it makes no decision."""
