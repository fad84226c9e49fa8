"""The events, one module per subject: the change that each event makes to the state.

A function that returns a list of decisions returns what has to be sent: replies, orders and notes.
"""
