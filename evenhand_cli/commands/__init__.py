"""The commands of `evenhand`, with a module for each group of commands."""
