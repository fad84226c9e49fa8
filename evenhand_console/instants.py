"""Instants as the pages show them: always in UTC, because visitors are in several zones."""

from datetime import UTC, datetime


def utc(milliseconds: int) -> str:
    """Return Unix milliseconds as text in UTC; a dash for 0."""
    if not milliseconds:
        return "-"
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")
