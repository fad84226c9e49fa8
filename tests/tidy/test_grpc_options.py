"""gRPC silently ignores an option whose name it does not know, so every name is looked up in its library."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPTION = re.compile(r'"(grpc\.[a-z0-9_.]+)",')


def test_every_option_of_ours_is_known_to_grpc() -> None:
    found = importlib.util.find_spec("grpc._cython.cygrpc")
    assert found is not None
    assert found.origin is not None
    library = Path(found.origin).read_bytes()
    sources = [
        path
        for top in ("server", "shim_client", "evenhand_cli", "evenhand_console")
        for path in files(top)
    ]
    names = {name for path in sources for name in OPTION.findall(path.read_text())}
    assert len(names) > 5, "the pattern finds them no more"
    assert {name for name in names if name.encode() not in library} == set()


def files(top: str) -> list[Path]:
    return sorted((ROOT / top).rglob("*.py"))
