"""The shim's state machine: all that it knows of cluster and core.

Observations of the cluster, decisions of the core and outcomes of actions are its inputs, one at a time; reports
to the core and actions on the cluster are its outputs. No module here reads a clock, does I/O or knows the wire.
"""
