"""The wire: the codec compared with the generated classes, and a server in this process on loopback."""
