"""The check for options that have no effect together with another option, or without it.

Such an option is refused. An option is accepted if the answer is the same without it: `--no-headers` with JSON, or
`--asks` together with `--waiting`.
"""

from collections.abc import Mapping

from evenhand_cli.faults import ExitCode, Fault

Given = bool | str | float | None
"""The value of an option; a false value means that the option was not given."""


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
