"""The pure translation of Kubernetes objects to the shim's own values, and of these to wire messages and back."""
