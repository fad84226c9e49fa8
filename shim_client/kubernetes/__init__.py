"""A real Kubernetes API server behind the port of `shim_client.cluster`.

The kubeconfig, the service account and TLS are lightkube's; the requests are made here, because the
shim needs what its methods leave out: preconditions of deletions, bookmarks and read timeouts of
watches, answers to bindings that are a Status, objects as plain mappings.
"""
