"""The check for an option that has no effect because another option was given, or because another option is missing.

An option without effect is refused. An option that is merely redundant is accepted, such as `--no-headers` with JSON,
or `--asks` together with `--waiting`.
"""

from collections.abc import Mapping

from evenhand_cli.faults import ExitCode, Fault

Given = bool | str | float | None
"""The value of an option. An empty or false value means that the option was not given."""


def refuse_together(option: str, **given: Given) -> None:
    """Raise Fault if an option was given that has no effect together with `option`."""
    for name in _names(given):
        raise Fault(
            f"{option} and {name} cannot be combined",
            where=name,
            advice="leave one of them out",
            code=ExitCode.USAGE,
        )


def refuse_without(needed: str, **given: Given) -> None:
    """Raise Fault if an option was given that has an effect only with `needed`."""
    for name in _names(given):
        raise Fault(
            f"{name} has no effect without {needed}",
            where=name,
            advice=f"add {needed}, or leave {name} out",
            code=ExitCode.USAGE,
        )


def _names(given: Mapping[str, Given]) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
