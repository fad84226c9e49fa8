"""The handlers of events, one module per subject: each handler makes the changes of an event to the state.

A handler that returns a list of decisions returns everything that has to be sent: replies, orders and notes.
"""
