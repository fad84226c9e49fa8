"""The reasons why asks wait: how the reasons are found in the live state, and when they are reported."""
