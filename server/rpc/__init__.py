"""The gRPC edge of the core: streams, sessions, roles, back-pressure and health. This package takes no decision."""
