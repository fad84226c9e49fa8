"""The client that translates Kubernetes to the core and carries out its decisions."""
