"""The commands, with a module for each group."""
