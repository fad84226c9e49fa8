"""The web console: a gRPC client of the core that shows the core's answers as pages."""
