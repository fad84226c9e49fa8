"""The settings of the history (how often usage is sampled, how long everything is kept), and the report of the writing process."""

from typing import Final, NamedTuple

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
TEN_MINUTES_MS: Final = 10 * MINUTE_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


GIB: Final = 1 << 30


class Settings(NamedTuple):
    """The settings of the history: how long rows are kept (the retention), and how often usage is sampled and downsampled.

    Durations are in milliseconds.

    ``size_max`` is the size of a file of SQLite, in bytes, above which the oldest rows are deleted early. 0 means no limit.

    Usage that is older than ``minutes_after_ms`` has steps of one minute. Usage that is older than ``ten_minutes_after_ms`` has
    steps of ten minutes.
    """

    retention_ms: int = 90 * DAY_MS
    minutes_after_ms: int = 6 * HOUR_MS
    ten_minutes_after_ms: int = 3 * DAY_MS
    sample_ms: int = 10 * SECOND_MS
    size_max: int = 2 * GIB


DEFAULT: Final = Settings()


class Beginning(NamedTuple):
    """The version and name of a core, and whether the core leads. ``shares`` says that other cores write the same history in turn.

    A core that shares its history writes only while it leads.
    """

    version: str
    core: str = ""
    leads: bool = True
    shares: bool = False


class Status(NamedTuple):
    """The report of the writing process, sent as a line of JSON."""

    written: int = 0
    """The number of the latest item that is written."""
    failing: str = ""
    """The reason why the process cannot write now, "" if it can."""
    fatal: str = ""
    """The reason why the history cannot be used at all, or "". With such a reason, the process ends."""
    ready: bool = False
    idle: bool = False
    """Whether another core may write now."""
    cut: str = ""
    """The rows that were deleted early because of the size limit, as a sentence, or ""."""
