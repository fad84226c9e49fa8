"""The support for commands on a running embedded cluster: the connection of a command, and the tasks that answer commands."""
