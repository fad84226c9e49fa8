"""Placement as among random worlds: asks of any number that came together are placed together."""

from tests.simulation.conftest import bursts_of_any_size

__all__ = ["bursts_of_any_size"]
