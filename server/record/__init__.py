"""The decision log and the input trace: decisions and inputs as lines that can be checked and replayed.

The records are not the source of truth about where pods run: only the live state of the core is. No code in this package may stop
or change scheduling, and the core does not import the package.
"""
