"""A real Kubernetes API server as a backend of the port `shim_client.cluster`.

The kubeconfig, the service account and TLS are lightkube's. The requests are made here, because the
shim needs what lightkube's methods lack: preconditions of deletions, bookmarks and read timeouts of
watches, answers to bindings that are a Status, objects as plain mappings.
"""
