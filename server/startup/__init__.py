"""The configuration and the state with which a server starts, read before it serves."""
