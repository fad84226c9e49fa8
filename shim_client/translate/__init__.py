"""The translation of Kubernetes objects to the shim's values, and of these values to wire messages and back, without I/O."""
