"""The Kubernetes shim: it watches a cluster, reports pods and nodes to the core, and carries out what the core decides."""
