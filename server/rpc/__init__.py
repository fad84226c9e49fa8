"""The edge that speaks gRPC: streams, sessions, roles, back-pressure, health. It takes no decision."""
