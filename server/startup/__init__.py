"""What a server reads before it serves: the configuration and the state that are in force when it starts."""
