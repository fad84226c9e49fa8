"""The translation of wire messages to events, and of decisions to wire messages.

Pure; an object with a fault raises a `RefusedError` that names the field.
"""
