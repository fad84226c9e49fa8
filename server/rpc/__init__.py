"""The gRPC edge of the core: streams, sessions, roles, back-pressure and health. No scheduling decision is made here."""
