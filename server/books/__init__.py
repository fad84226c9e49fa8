"""The mutable truth: partitions, queues, applications, asks, nodes and commitments, written by one journal."""
