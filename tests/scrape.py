"""The metrics of a process, as a Prometheus server reads them over HTTP."""

from urllib.request import urlopen


def scraped(address: str) -> dict[str, float]:
    """Return the metrics at HOST:PORT, by name and labels."""
    with urlopen(f"http://{address}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}
