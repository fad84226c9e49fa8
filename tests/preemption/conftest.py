"""Placement as in random clusters: any number of asks that arrive together are placed together."""

from tests.simulation.conftest import bursts_of_any_size

__all__ = ["bursts_of_any_size"]
