"""The link to the core: registration, three streams, batching, reconnect; no decision is made here."""
