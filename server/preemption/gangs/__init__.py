"""Preemption for gangs: all members get capacity, or no pod is evicted (J)."""
