"""The setting of placement for random clusters: asks that arrive together are placed together, however few they are."""

from tests.simulation.conftest import bursts_of_any_size

__all__ = ["bursts_of_any_size"]
