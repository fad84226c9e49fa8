"""The embedded cluster: Kubernetes objects in memory with the same interface as a real API server.

A directory of YAML becomes a cluster with watches, bindings, graceful deletion, admission of PriorityClasses, controllers
for Deployments, ReplicaSets, StatefulSets, Jobs, DaemonSets and PodDisruptionBudgets, and nodes that run the pods bound
to them. The cluster has no scheduler of its own.
"""
