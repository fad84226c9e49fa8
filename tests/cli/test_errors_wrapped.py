"""Lines on the error stream of a narrow terminal: broken between words, never within a path or a command."""

from tests.cli.run import evenhand

PATH = "/etc/evenhand/clusters/production/configuration/" + "queues-of-the-research-department.yaml"


def narrow(*arguments: str) -> list[str]:
    return evenhand(*arguments, width=60).err.splitlines()


def test_a_long_line_goes_on_below_its_text() -> None:
    lines = narrow("queues", "--core", "127.0.0.1:1", "--timeout", "1")
    assert lines[0] == "error: cannot reach the core at 127.0.0.1:1"
    assert all(len(line) <= 60 for line in lines)
    assert all(line[:7].strip() in {"error:", "where:", "do:", ""} for line in lines)


def test_a_command_stays_in_one_line() -> None:
    lines = narrow("decisions", "--policy", "job", "--lost-work", "--shadow", "--core", "x:1")
    assert lines == [
        "error: --lost-work and --shadow cannot be combined",
        "where: --shadow",
        "do:    leave one of them out",
    ]
    lines = narrow("context", "show")
    assert [line for line in lines if "evenhand context set" in line]
    assert [line for line in lines if "`evenhand context use NAME`" in line]


def test_a_path_stays_in_one_line() -> None:
    lines = narrow("config", "check", PATH)
    assert any(PATH in line for line in lines)


def test_lines_stay_whole_where_no_width_is_known() -> None:
    ended = evenhand("context", "show", COLUMNS="")
    assert next(line for line in ended.err.splitlines() if line.startswith("do:")).endswith(
        "or make one with `evenhand context set`"
    )
