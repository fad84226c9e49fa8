"""A real Kubernetes API server as a backend of the interface `shim_client.cluster`.

lightkube reads the kubeconfig and the service account and sets up TLS. This package makes the requests itself,
because lightkube's methods lack some features: preconditions of deletions, bookmarks and read timeouts of watches,
bindings that are answered with a Status, and objects as plain mappings.
"""
