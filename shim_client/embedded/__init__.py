"""The embedded cluster: Kubernetes objects in memory with the same interface as a real API server.

A directory of YAML becomes a cluster. This cluster has watches, bindings, graceful deletion, admission of
PriorityClasses, and nodes that run the pods bound to them. There are controllers for Deployments, ReplicaSets,
StatefulSets, Jobs, DaemonSets and PodDisruptionBudgets. The cluster has no scheduler of its own.
"""
