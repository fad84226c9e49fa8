"""The mirror: what the shim knows of cluster and core, as a pure state machine.

Observations of the cluster, decisions of the core and outcomes of actions go in, one at a time;
reports to the core and actions on the cluster come out.  No clock, no input or output, no wire.
"""
