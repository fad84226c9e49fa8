"""The command line `evenhand`."""
