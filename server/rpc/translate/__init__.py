"""Wire words to events, decisions to wire words. Pure; what an object lacks is said by a `RefusedError` that names the field."""
