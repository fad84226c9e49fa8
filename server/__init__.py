"""The scheduler core and the gRPC service around it."""
