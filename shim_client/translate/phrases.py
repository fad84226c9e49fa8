"""The wording of numbers in events and problems of the shim.

The shim has its own wording, because it imports nothing of the server.
"""


def count(number: int, noun: str, one: str = "", many: str = "") -> str:
    """Return a number and its noun, with the verb that agrees: `1 pod is`, `2 pods are`, `3 pods`."""
    text = f"{number} {noun if number == 1 else f'{noun}s'}"
    return f"{text} {one if number == 1 else many}".rstrip()
