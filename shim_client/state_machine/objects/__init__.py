"""Kubernetes objects other than pods and nodes that the shim watches."""
