"""The creation of the virtual environment, with the project in editable form and its tools.

The system's own Python runs this script, so it uses only the standard library.
"""

import os
import subprocess
import sys
from pathlib import Path

MISSING_VENV = """make: this Python cannot make virtual environments (the module ensurepip is missing).
      On Debian and Ubuntu install the package python3-venv:  apt-get install python3-venv"""
OLD_PYTHON = (
    "make: Evenhand needs Python 3.11 or later; this is {}.\n      Another one: make PYTHON=..."
)


def main(folder: str) -> None:
    """Create the environment in `folder`, or complete it."""
    if sys.version_info < (3, 11):
        raise SystemExit(OLD_PYTHON.format(sys.version.split()[0]))
    programs = Path(folder).absolute() / "bin"
    if not (programs / "python").exists():
        _make(folder)
    # The build runs protoc, which looks for its plugin on the PATH.
    env = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet"]
    # The pins are complete, so pip resolves nothing: it would look for `coverage[toml]` beyond the pin of `coverage`.
    _run([*pip, "--no-deps", "--require-hashes", "--requirement", "requirements-dev.txt"], env)
    _run([*pip, "--no-deps", "--no-build-isolation", "--editable", "."], env)
    _run([*pip[:3], "check"], env)


def _make(folder: str) -> None:
    try:
        import ensurepip  # noqa: F401, PLC0415 -- Debian ships it apart from Python.
        import venv  # noqa: PLC0415
    except ImportError:
        raise SystemExit(MISSING_VENV) from None
    sys.stdout.write(f"Making {folder} (once; a minute or two) ...\n")
    sys.stdout.flush()
    venv.create(folder, with_pip=True, clear=True)


def _run(command: list[str], env: dict[str, str]) -> None:
    if subprocess.run(command, env=env, check=False).returncode != 0:  # noqa: S603 -- our words.
        raise SystemExit(f"make: failed: {' '.join(command)}")


if __name__ == "__main__":
    main(sys.argv[1])
