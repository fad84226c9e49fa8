"""The Kubernetes objects that the shim watches, apart from pods and nodes."""
