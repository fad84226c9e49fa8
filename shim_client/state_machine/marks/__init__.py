"""Marks that the shim writes on pods: annotations on victims, soft evictions, and events on waiting pods."""
