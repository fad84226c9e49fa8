"""The reading of `queues.yaml`: `load` reads a text, and `diff` compares two configurations. Problems name file, line and path."""

from server.config.difference import Change, diff
from server.config.problems import Problem
from server.config.reader import Loaded, examine, load

__all__ = ["Change", "Loaded", "Problem", "diff", "examine", "load"]
