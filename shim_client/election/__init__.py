"""The election of one shim of several by a lease: who may act, until when, and in which epoch (design 7.2)."""
