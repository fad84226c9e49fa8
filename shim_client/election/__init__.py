"""The election of one of several shims by a lease: which shim may act, until when, and in which epoch (design 7.2)."""
