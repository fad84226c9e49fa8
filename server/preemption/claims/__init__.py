"""Preemption for single asks: claims up to a queue's entitlement (G), and replacement of pods of the same queue (I)."""
