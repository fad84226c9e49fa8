"""The embedded cluster: Kubernetes objects in memory behind the same port as a real API server.

A directory of YAML becomes a cluster with watches, bindings, graceful deletion, admission of
PriorityClasses, controllers for Deployments, ReplicaSets, Jobs and DaemonSets, and nodes that run
the pods bound to them. It schedules nothing.
"""
