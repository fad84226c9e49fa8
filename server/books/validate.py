"""Invariants of a partition (interim: its owner replaces this file)."""

from server.books.partition import Partition


def validate(partition: Partition) -> None:
    """Nothing yet."""
