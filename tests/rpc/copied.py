"""What a test has in common with a copy of its process."""

import multiprocessing

SHARED = multiprocessing.get_context("fork")
"""Makes events and values that a child process has in common with its parent, without descriptors."""
