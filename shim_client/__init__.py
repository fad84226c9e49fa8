"""The Kubernetes shim: watches a cluster, asks the core, carries out what the core decides."""
