"""The client of the core: registration, three streams, batching of reports, and reconnection. This package makes no decisions."""
