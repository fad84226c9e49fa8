"""Quota enforcement and surplus reclaim: queues that have to give back what is above their limit or share (Q, W3)."""
