"""The section `reservations` of a partition: its keys, defaults, errors and warnings."""

import pytest

from server.model.quota import ReservationSettings
from tests.config.texts import assert_problem, cases, only_partition, partition, problems

KEYS = cases(
    ("nothing", "", ReservationSettings(enabled=True, timeout_ms=600_000)),
    ("a section without keys", "reservations: {}", ReservationSettings()),
    ("a section without a value", "reservations:", ReservationSettings()),
    ("off", "reservations: {enabled: false}", ReservationSettings(enabled=False)),
    ("a bound", "reservations: {timeout: 1h30m}", ReservationSettings(timeout_ms=5_400_000)),
    ("no bound", "reservations: {timeout: 0}", ReservationSettings(timeout_ms=0)),
)
REFUSED = cases(
    ("unknown key", "{timeuot: 1m}", "timeuot", "unknown key"),
    ("not a duration", "{timeout: 10}", "timeout", "unit"),
    ("negative", "{timeout: -1m}", "timeout", "-1m"),
    ("not a boolean", "{enabled: maybe}", "enabled", "true or false"),
    ("not a section", "10m", "", "must be a mapping"),
)


def text(written: str) -> str:
    return partition(f"queues: [{{name: root, submitacl: '*'}}]\n{written}")


@pytest.mark.parametrize(("written", "expected"), KEYS)
def test_the_section_is_read(written: str, expected: ReservationSettings) -> None:
    assert only_partition(text(written)).reservations == expected


@pytest.mark.parametrize(("written", "key", "message"), REFUSED)
def test_what_is_wrong_is_named_with_its_path(written: str, key: str, message: str) -> None:
    path = f"reservations.{key}" if key else "reservations"
    (problem,) = problems(text(f"reservations: {written}"))
    assert problem.severity == "error"
    assert problem.path == f"partitions[0].{path}"
    assert message in problem.message


def test_a_bound_without_reservations_is_warned_of() -> None:
    written = text("reservations:\n  enabled: false\n  timeout: 5m  # <-")
    assert_problem(written, "warning", "reservations.timeout", "reservations are switched off")


def test_a_bound_of_seconds_is_warned_of() -> None:
    written = text("reservations:\n  timeout: 5s  # <-")
    assert_problem(written, "warning", "reservations.timeout", "5s is shorter than most pods run")
