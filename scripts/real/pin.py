"""The Go module that pins API server and kubectl of one version of Kubernetes, for `make real KUBERNETES=1.NN`.

    python -m scripts.real.pin 1.32.13

writes `scripts/real/tools/1.32/go.mod` and `go.sum`. Both are committed: Go then verifies every download against the
sums and chooses no version by itself. The libraries that Kubernetes develops in its own repository (`staging`) have
the version 0.NN.P of the release 1.NN.P; all other libraries have the versions that the release itself names.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from scripts.real.toolchain import environment, find_go

TOOLS = Path(__file__).with_name("tools")
KUBERNETES = "k8s.io/kubernetes"
GO = "1.26.0"
"""The Go version of the modules; tool lines need 1.24 or later."""
VERSION = re.compile(r"1\.\d+\.\d+")
STAGED = re.compile(r"^\t(k8s\.io/[\w-]+) => \./staging/", re.MULTILINE)
"""A line of Kubernetes' own go.mod that replaces a library by its folder in the repository."""
SAMPLE = "k8s.io/sample-"
"""The beginning of the names of staged libraries that no program uses, and that are not published with each release."""
LANGUAGE = re.compile(r"^go (\d+\.\d+)", re.MULTILINE)


def module(version: str, published: str) -> str:
    """Return the text of go.mod for a version without its `v`, from the go.mod that Kubernetes published with it.

    The programs keep the run-time settings (`godebug`) of the Go version for which the release was written.
    """
    library = version.replace("1.", "v0.", 1)
    language = LANGUAGE.search(published)
    assert language is not None
    lines = [
        f"module evenhand/real/kubernetes-{version.rpartition('.')[0]}",
        f"go {GO}",
        f"godebug default=go{language[1]}",
        f"tool (\n\t{KUBERNETES}/cmd/kube-apiserver\n\t{KUBERNETES}/cmd/kubectl\n)",
        f"require {KUBERNETES} v{version}",
    ]
    staged = STAGED.findall(published)
    used = "\n".join(f"\t{name} => {name} {library}" for name in staged if SAMPLE not in name)
    samples = "\n".join(f"\t{name} v0.0.0" for name in staged if SAMPLE in name)
    return "\n\n".join((*lines, f"exclude (\n{samples}\n)", f"replace (\n{used}\n)")) + "\n"


def main() -> None:
    """Write the module of one version and let Go complete it."""
    parser = argparse.ArgumentParser(description="Pin API server and kubectl of a version.")
    parser.add_argument("version", help="for example 1.32.13")
    version = parser.parse_args().version
    go = find_go()
    if go is None or VERSION.fullmatch(version) is None:
        raise SystemExit("pin: needs Go, and a version such as 1.32.13")
    folder = TOOLS / version.rpartition(".")[0]
    folder.mkdir(exist_ok=True)
    command = [go, "mod", "download", "-json", f"{KUBERNETES}@v{version}"]
    said = subprocess.run(  # noqa: S603 -- our words.
        command, env=environment(), check=True, text=True, stdout=subprocess.PIPE, cwd=folder.parent
    ).stdout
    (folder / "go.mod").write_text(module(version, Path(json.loads(said)["GoMod"]).read_text()))
    (folder / "go.sum").unlink(missing_ok=True)
    subprocess.run([go, "mod", "tidy"], cwd=folder, env=environment(), check=True)  # noqa: S603
    sys.stdout.write(f"{folder}\n")


if __name__ == "__main__":
    main()
