"""The mutable state: partitions, queues, applications, asks, nodes and commitments, written by one journal."""
