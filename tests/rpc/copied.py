"""Values that a test shares with a copy of its process."""

import multiprocessing

SHARED = multiprocessing.get_context("fork")
"""The context of events and values that a child process shares with its parent, without descriptors."""
