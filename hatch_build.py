"""The build hook: it generates the Python of the wire from proto/ into gen/, which git does not hold."""

import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EXAMPLE = "examples/clusters/small"
EXAMPLE_PACKED = "evenhand_cli/examples/small"
"""The path at which `evenhand demo` looks for the example in a wheel."""


class CustomBuildHook(BuildHookInterface[Any]):
    """A hook that generates messages, their .pyi, gRPC stubs and their .pyi before anything is packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run protoc for every target, also for editable installs; add the example to a wheel."""
        root = Path(self.root)
        generate(root)
        if self.target_name == "wheel" and version == "standard":
            build_data["force_include"][str(root / EXAMPLE)] = EXAMPLE_PACKED


def generate(root: Path) -> None:
    """Fill `root`/gen from `root`/proto; raises SystemExit when protoc finds a mistake."""
    import grpc_tools
    from grpc_tools import protoc

    made = root / "gen"
    for package in ("si", "evenhand"):
        shutil.rmtree(made / package, ignore_errors=True)
    made.mkdir(exist_ok=True)
    sources = sorted((root / "proto").rglob("*.proto"))
    outputs = ("python", "pyi", "grpc_python", "mypy_grpc")
    arguments = [
        "protoc",
        f"--proto_path={root / 'proto'}",
        f"--proto_path={Path(grpc_tools.__file__).parent / '_proto'}",
        *(f"--{output}_out={made}" for output in outputs),
        *map(str, sources),
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("hatch_build: protoc refused the files of proto/")
    for folder in sorted({source.parent for source in sources}):
        _mark(made, folder.relative_to(root / "proto"))


def _mark(made: Path, package: Path) -> None:
    """Make the folder and the folders above it typed packages."""
    for folder in (package, *package.parents[:-1]):
        (made / folder / "__init__.py").write_text('"""Generated from proto/."""\n')
        (made / folder / "py.typed").touch()


if __name__ == "__main__":
    generate(Path(__file__).parent)
