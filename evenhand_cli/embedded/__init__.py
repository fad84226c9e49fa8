"""The connection of commands to a running embedded cluster, and what the shim of that cluster saves and serves."""
