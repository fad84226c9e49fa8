"""The decision log and the input trace: decisions and inputs as lines that can be checked and replayed.

A record does not say where pods are: the live state does. No code here may stop or change scheduling, and the core does not
know of it.
"""
