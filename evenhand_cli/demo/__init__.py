"""The demonstration: core, shim and embedded cluster in one terminal."""
