"""A real cluster's nodes and pods; skipped by name where the data is not beside the project."""
