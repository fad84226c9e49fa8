"""The wire: codec against the generated classes, and a server in this process on loopback."""
