"""The demonstration: core, shim and embedded cluster in one process, shown on a terminal."""
