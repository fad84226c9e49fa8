"""`config diff` against a running core, and `config apply` with the token of a shim."""

from pathlib import Path

import pytest

from tests.cli.processes import address_of, finished, running

QUEUES = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: a}
"""
TOKENS = """\
tokens:
  - {token: operator-0123456789, role: operator}
  - {token: shim-0123456789abcdef, role: shim}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES)
    return file


def test_the_exit_code_says_whether_a_file_differs(tmp_path: Path, file: Path) -> None:
    options = ["serve", "--config", str(file), "--listen", "127.0.0.1:0"]
    with running(options, tmp_path / "log") as process:
        core = ("--core", address_of(process, tmp_path / "log"))
        same = finished("config", "diff", str(file), *core)
        assert (same.returncode, same.stderr) == (0, "")
        assert "says the same as revision 1, which is in force" in same.stdout
        file.write_text(f"# a remark\n{QUEUES}")
        assert finished("config", "diff", str(file), *core).returncode == 0
        file.write_text(QUEUES + "          - {name: b}\n")
        other = finished("config", "diff", str(file), *core)
        assert other.returncode == 1
        assert "+ queue root.b" in other.stdout
        file.write_text("partitions: 7\n")
        bad = finished("config", "diff", str(file), *core)
        assert bad.returncode == 2
        assert "error" in bad.stdout
    assert finished("config", "diff", str(file), *core).returncode == 3


def test_a_shims_token_needs_no_force(tmp_path: Path, file: Path) -> None:
    """The revision in force was asked for with a call that is for operators alone."""
    for name, text in (("tokens", TOKENS), ("shim", "shim-0123456789abcdef")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    options = ["serve", "--tokens", str(tmp_path / "tokens"), "--insecure"]
    with running([*options, "--listen", "127.0.0.1:0"], tmp_path / "log") as process:
        core = ("--core", address_of(process, tmp_path / "log"))
        token = ("--token-file", str(tmp_path / "shim"))
        applied = finished("config", "apply", str(file), *core, *token)
        assert applied.returncode == 0, applied.stderr
        assert "applied: revision 2, before it 1" in applied.stdout
