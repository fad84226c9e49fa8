"""Run a part of the tests with one defect in the core: `python -m tests.mutants.infected NUMBER`.

The exit code is 0, after the name of the first example that fails; 1 when all examples pass; and 2 when the source
text that the defect replaces does not occur exactly once.
"""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import CodeType, ModuleType

from tests.mutants.defects import DEFECTS, Defect

CAUGHT, SURVIVED, GONE = 0, 1, 2


class _Loader(importlib.machinery.SourceFileLoader):
    """A loader of the module's source with the defect; it bypasses every cache."""

    defect: Defect

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path).decode()
        if source.count(self.defect.text) != 1:
            raise SystemExit(GONE)
        return compile(source.replace(self.defect.text, self.defect.wrong), path, "exec")


class _Finder(MetaPathFinder):
    """A finder for the one module that has the defect."""

    def __init__(self, defect: Defect) -> None:
        self._defect = defect

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._defect.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise SystemExit(GONE)
        loader = _Loader(fullname, spec.origin)
        loader.defect = self._defect
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)


def main(number: int) -> int:
    """Run examples until one shows the defect."""
    defect = DEFECTS[number]
    sys.meta_path.insert(0, _Finder(defect))
    from tests.mutants.judges import examples  # noqa: PLC0415 - imported with the defect in place

    for one in examples(defect):
        try:
            one.run()
        except AssertionError:
            sys.stdout.write(one.name)
            return CAUGHT
    return SURVIVED


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
