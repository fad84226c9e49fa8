"""The shim's state machine: the state of cluster and core that the shim knows, and its reactions to every input.

The machine takes its inputs one at a time: observations of the cluster, decisions of the core, and results of
actions. The outputs of the machine are reports to the core and actions on the cluster. No module here reads a
clock, does I/O or knows the wire format.
"""
