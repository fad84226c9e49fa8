"""Times in the form in which people read and write them: with the zone, and with the date when it is not today."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import typer

from evenhand_cli.durations import instant_ms
from evenhand_cli.render.words import instant

AT = 1_795_530_600_000
"""2026-11-24 14:30:00 UTC."""


@pytest.fixture(params=["UTC", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_another_day_has_its_date_year_and_zone(zone: str) -> None:
    told = {"UTC": "2001-09-09 01:46:40 UTC", "Asia/Kolkata": "2001-09-09 07:16:40 IST"}
    assert instant(1_000_000_000_000) == told[zone]


def test_today_is_a_time_of_day_with_its_zone(zone: str) -> None:
    noon = datetime.now().astimezone().replace(hour=12, minute=0, second=0, microsecond=0)
    assert instant(int(noon.timestamp() * 1000)) == f"12:00:00 {noon.strftime('%Z')}"
    assert instant(0) == "-"
    assert zone


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (str(AT), AT),
        ("2026-11-24T14:30:00Z", AT),
        ("2026-11-24 15:30:00+01:00", AT),
        ("2026-11-24T14:30:00.250Z", AT + 250),
    ],
)
def test_an_instant_is_read(text: str, expected: int) -> None:
    assert instant_ms(text) == expected


def test_an_instant_without_a_zone_is_local(zone: str) -> None:
    local = datetime.fromtimestamp(AT / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert instant_ms(local) == AT
    assert zone


@pytest.mark.parametrize("text", ["yesterday", "", "24.11.2026", "-5"])
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="no instant"):
        instant_ms(text)
