"""Quota enforcement and surplus reclaim: queues give back the amounts above their limit or share (Q, W3)."""
