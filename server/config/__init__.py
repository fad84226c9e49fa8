"""The reading of `queues.yaml`: `load` a text, `diff` two configurations; problems name file, line and path."""

from server.config.difference import Change, diff
from server.config.problems import Problem
from server.config.reader import Loaded, examine, load

__all__ = ["Change", "Loaded", "Problem", "diff", "examine", "load"]
