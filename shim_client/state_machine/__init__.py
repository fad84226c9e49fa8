"""The shim's state machine: all that the shim knows of cluster and core, and what it does about it.

The machine takes its inputs one at a time: observations of the cluster, decisions of the core, and results of
actions. The outputs of the machine are reports to the core and actions on the cluster. No module here reads a
clock, does I/O or knows the wire format.
"""
