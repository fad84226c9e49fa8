"""The translation of wire messages to events, and of decisions to wire messages.

The functions are pure. For an object with a fault they raise a `RefusedError` that names the field.
"""
