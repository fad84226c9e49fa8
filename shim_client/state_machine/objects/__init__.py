"""The Kubernetes objects beside pods and nodes that the shim follows."""
