"""The reasons why asks wait: found in the live state, and reported when they change."""
