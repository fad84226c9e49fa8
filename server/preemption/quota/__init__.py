"""Quota enforcement and surplus reclaim: queues give back what exceeds their limit or share (Q, W3)."""
