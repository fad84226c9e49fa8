"""The Kubernetes shim: it watches a cluster, reports pods and nodes to the core, and carries out the core's decisions."""
