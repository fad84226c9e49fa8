"""Figures on the shape of the source tree: sizes, folders, imports, policies, ids, and a sample of sentences.

Run as `python -m scripts.figures [ROOT]`. Only the standard library is used, so that any commit can be measured from outside.

- A comparison of policy names is a comparison (`==`, `!=`, `in`, `is`, `match`) in a module other than the table of
  policies. It compares with the name of a policy, with a constant that holds it, or with a row of that table. A tuple
  that is looked up is the key of a cache, and does not count as a comparison of policies.
- A file that a new policy touches is a file with the name of a present policy as a whole string, or with a constant
  that holds it. Only the three policies whose names have no other meaning are counted.
- An unresolved id is cited but has no anchor in docs/rules and docs/decisions. It is a rule id (`G4`), a decision
  (`design 6.3`) or a seed's rule (`law 5`).
- The import levels of a folder are the length of its longest chain of imports. Modules that import each other count as
  one. The arrows of a folder are the imports between two of its modules, all sub-folders included.
"""

import argparse
import ast
import json
import random  # noqa: TID251 -- the sample takes its seed as an argument.
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

PACKAGES: Final = ("server", "shim_client", "evenhand_cli", "evenhand_console")
LAYERED: Final = ("server", "shim_client")
POLICIES: Final = (
    "required-node",
    "guaranteed",
    "job",
    "in-queue",
    "quota",
    "trim",
    "reservation",
)
UNAMBIGUOUS: Final = ("required-node", "in-queue", "trim")
"""Policies whose names have no other meaning.

A string is therefore enough to find their uses.
"""
TABLE: Final = "server.model.policies"
OTHER_MEANINGS: Final = ("cross_node", "key")
"""Names and attributes whose values can be equal to a policy's name without meaning the policy."""
RULE: Final = re.compile(r"(?<![\w.])([GJIPQVW][1-9]\d?)(?![\w.%])")
NUMBER: Final = r"\d+(?:\.\d+)?"
DECISION: Final = re.compile(rf"\bdesign\s+({NUMBER}(?:(?:, and |, | and |-| to )\d+\.\d+)*)")
"""A citation of decisions with all its numbers, such as "design 6.3", "design 1.8 and 6.10", "design 6.3-6.6"."""
RANGE: Final = re.compile(r"(\d+)\.(\d+)(?:-| to )\1\.(\d+)")
LAW: Final = re.compile(r"\b(law\s+\d+)\b", re.IGNORECASE)
HEADING: Final = re.compile(
    r"^#{2,6} ([GJIPQVW]\d{1,2})\b|<a (?:id|name)=\"([^\"]+)\"", re.MULTILINE
)
SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"])")
DOCSTRINGS: Final = 150
PAGES: Final = 100
WIDTH: Final = 80
DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

Row = tuple[str, str]
Sources = Mapping[str, str]
"""The text of modules by their dotted names."""


@dataclass(frozen=True)
class Sizes:
    """The number of things, and the median and 90th percentile of their line counts."""

    count: int
    median: int
    p90: int


@dataclass(frozen=True)
class Folder:
    """A folder with its sub-folders: the largest number of modules in one folder, import levels, and arrows."""

    modules: int
    levels: int
    arrows: int


@dataclass(frozen=True)
class Figures:
    """All figures of one tree."""

    modules: Sizes
    functions: Sizes
    largest_folders: dict[str, int]
    imports: dict[str, Folder]
    policy_comparisons: dict[str, int]
    policy_files: dict[str, list[str]]
    unresolved_ids: dict[str, int]


def sizes(lines: Iterable[int]) -> Sizes:
    """Return count, median and 90th percentile, both by nearest rank."""
    ordered = sorted(lines)
    if not ordered:
        return Sizes(0, 0, 0)
    last = len(ordered) - 1
    return Sizes(len(ordered), ordered[last // 2], ordered[last * 9 // 10])


def function_lines(source: str) -> list[int]:
    """Return the number of lines of each function and method, without decorators."""
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


# Imports --------------------------------------------------------------------------------------------------------------


def imported(source: str, known: Iterable[str]) -> set[str]:
    """Return the known modules that a module imports anywhere in its text."""
    modules, found = set(known), set[str]()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found.update(one.name for one in names)
            case ast.ImportFrom(module=str(origin), names=names, level=0):
                for one in names:
                    whole = f"{origin}.{one.name}"
                    found.add(whole if whole in modules else origin)
    return found & modules


def levels(arrows: Mapping[str, set[str]]) -> int:
    """Return the length of the longest chain of arrows, where a cycle counts as one level."""
    reach = {one: _reachable(one, arrows) for one in arrows}
    circle = {one: frozenset(x for x in reach[one] if one in reach[x]) | {one} for one in arrows}
    below = {
        circle[one]: {circle[x] for member in circle[one] for x in arrows[member]} - {circle[one]}
        for one in arrows
    }
    depth: dict[frozenset[str], int] = {}
    # A cycle reaches itself and all that the cycles below it reach. So inner cycles come first in
    # this order.
    for one in sorted(below, key=lambda members: len(reach[min(members)] | members)):
        depth[one] = 1 + max((depth[x] for x in below[one]), default=0)
    return max(depth.values(), default=0)


def _reachable(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    found, left = set[str](), [start]
    while left:
        for one in arrows[left.pop()] - found:
            found.add(one)
            left.append(one)
    return found


def folder_imports(folder: str, sources: Sources) -> Folder:
    """Return modules, levels and arrows of a folder, given as a dotted name."""
    inside = [one for one in sources if one.startswith(f"{folder}.")]
    arrows = {one: imported(sources[one], inside) - {one} for one in inside}
    return Folder(len(inside), levels(arrows), sum(map(len, arrows.values())))


# Policies -------------------------------------------------------------------------------------------------------------


class PolicyReader:
    """The syntax tree of one module.

    The reader finds the expressions that are names of policies.
    """

    def __init__(self, module: str, source: str, known: Mapping[str, dict[str, set[str]]]) -> None:
        self.module = module
        self.tree = ast.parse(source)
        self.known = known
        self.origin = {
            one.asname or one.name: f"{node.module}.{one.name}"
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for one in node.names
        }

    def policies(self, node: ast.expr) -> set[str]:
        """Return the policies whose names an expression contains."""
        match node:
            case ast.Constant(value=str(value)):
                return {value} & set(POLICIES)
            case ast.Call(func=ast.Name(id="PolicyFacts"), keywords=keywords):
                return {
                    x for one in keywords if one.arg == "name" for x in self.policies(one.value)
                }
            case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[only]):
                return self.policies(only)
            case ast.Tuple(elts=parts) | ast.Set(elts=parts) | ast.List(elts=parts):
                single = [one for one in parts if not isinstance(one, ast.Tuple)]
                return {x for one in single for x in self.policies(one)}
            case ast.Attribute(value=ast.Name() as row, attr="name"):
                return self._held(row)
            case ast.Name() | ast.Attribute():
                return self._held(node)
        return set()

    def _held(self, node: ast.expr) -> set[str]:
        match node:
            case ast.Name(id=name):
                where = self.origin.get(name, f"{self.module}.{name}")
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                where = f"{self.origin.get(module, module)}.{name}"
            case _:
                return set()
        module, _, name = where.rpartition(".")
        return self.known.get(module, {}).get(name, set())

    def constants(self) -> dict[str, set[str]]:
        """Return, for each name at the top level of the module, the policies whose names its value contains."""
        found = {}
        for node in self.tree.body:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    found[name] = self.policies(value)
        return {name: held for name, held in found.items() if held}

    def comparisons(self) -> int:
        """Return how often the module compares the name of a policy."""
        return sum(
            any(self.policies(side) for side in _sides(node)) for node in ast.walk(self.tree)
        )

    def named(self) -> set[str]:
        """Return the policies that the module names by a whole string or by a constant."""
        return {
            one
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Constant | ast.Name | ast.Attribute)
            for one in self.policies(node)
        }


def _sides(node: ast.AST) -> list[ast.expr]:
    """Return the expressions that a comparison compares.

    Return [] for other nodes, and for words with other meanings.
    """
    match node:
        case ast.MatchValue(value=value):
            return [value]
        case ast.Compare(left=left, comparators=others):
            is_key = isinstance(left, ast.Tuple)
            sides = others if is_key else [left, *others]
            words = {getattr(one, "attr", getattr(one, "id", "")) for one in sides}
            return [] if words & set(OTHER_MEANINGS) else sides
    return []


def policy_readers(sources: Sources) -> list[PolicyReader]:
    """Return a reader for each module.

    Every reader knows the constants of all modules.
    """
    known: dict[str, dict[str, set[str]]] = {}
    readers = [PolicyReader(name, text, known) for name, text in sources.items()]
    before = -1
    while before < (before := sum(len(one) for names in known.values() for one in names.values())):
        known.update({one.module: one.constants() for one in readers})
    return readers


# Ids ------------------------------------------------------------------------------------------------------------------


def cited_ids(text: str) -> Counter[str]:
    """Return how often a text cites each rule, decision or rule of a seed."""
    found = Counter(RULE.findall(text))
    found.update(f"design {one}" for one in cited_decisions(text))
    found.update(" ".join(one.lower().split()) for one in LAW.findall(text))
    return found


def cited_decisions(text: str) -> list[str]:
    """Return the numbers of the decisions that a text cites, each as often as there are citations of it."""
    found: list[str] = []
    for citation in DECISION.findall(text):
        numbers = set(re.findall(NUMBER, citation))
        for part, first, last in RANGE.findall(citation):
            numbers.update(f"{part}.{one}" for one in range(int(first), int(last) + 1))
        found += sorted(numbers)
    return found


def anchors(root: Path) -> set[str]:
    """Return the ids that the documentation defines."""
    found = {
        (heading or anchor).upper()
        for page in root.glob("docs/rules/*.md")
        for heading, anchor in HEADING.findall(page.read_text("utf-8"))
    }
    pages = root.glob("docs/decisions/[0-9]*.md")
    return found | {f"design {page.name.partition('-')[0]}" for page in pages}


def unresolved(root: Path) -> dict[str, int]:
    """Return the ids that the documentation does not define, each with the number of places that cite it."""
    patterns = [f"{one}/**/*.py" for one in (*PACKAGES, "scripts", "tests")]
    patterns += ["tests/**/*.yaml", "docs/**/*.md", "proto/**/*.proto"]
    cited: Counter[str] = Counter()
    for path in (path for one in patterns for path in root.glob(one)):
        if not path.resolve().samefile(__file__):
            cited += cited_ids(path.read_text("utf-8"))
    defined = anchors(root)
    return {one: cited[one] for one in sorted(cited) if one not in defined}


# Sentences ------------------------------------------------------------------------------------------------------------


def sentences(text: str) -> list[str]:
    """Return the sentences of a docstring or page, without code blocks, tables, headings and lists of arguments."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", text):
        if re.match(r"\s*(?:\||#|    )", paragraph):
            continue
        words = " ".join(re.sub(r"^\s*(?:[-*>]|\d+\.)\s+", "", paragraph).split())
        found += [one for one in SENTENCE_END.split(words) if re.search(r"\w \w.*[.!?:)`]$", one)]
    return found


def docstring_sentences(sources: Sources) -> Iterator[Row]:
    """Yield the place and text of each sentence of a docstring, in the order of the source."""
    for module, source in sorted(sources.items()):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, DOCUMENTED):
                name = "" if isinstance(node, ast.Module) else f".{node.name}"
                for one in sentences(ast.get_docstring(node) or ""):
                    yield f"{module}{name}", one


def page_sentences(root: Path) -> Iterator[Row]:
    """Yield the place and text of each sentence of the documentation, page by page."""
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md")]
    for page in sorted(one for one in pages if one.name != "CHANGELOG.md"):
        for one in sentences(page.read_text("utf-8")):
            yield str(page.relative_to(root)), one


def sample(rows: Iterable[Row], size: int, seed: int) -> list[Row]:
    """Return `size` rows in their order, or all rows when there are fewer.

    A seed always draws the same rows.
    """
    given = list(rows)
    chosen = random.Random(seed).sample(range(len(given)), min(size, len(given)))  # noqa: S311 -- no secret.
    return [given[one] for one in sorted(chosen)]


# The whole ------------------------------------------------------------------------------------------------------------


def read(root: Path, packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the text of each module by its dotted name."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts): path.read_text("utf-8")
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
    }


def figures(root: Path) -> Figures:
    """Return all figures of the tree below `root`."""
    sources = read(root)
    side_by_side = Counter(
        name.rpartition(".")[0] for name in sources if not name.endswith("__init__")
    )
    folders = sorted(
        f"{top}.{path.name}"
        for top in LAYERED
        for path in (root / top).iterdir()
        if path.is_dir() and any(path.rglob("*.py"))
    )
    readers = policy_readers(sources)
    compared = {one.module: one.comparisons() for one in readers if one.module != TABLE}
    files = defaultdict[str, list[str]](list)
    for one in readers:
        for policy in one.named() & set(UNAMBIGUOUS):
            files[policy].append(one.module)
    return Figures(
        modules=sizes(len(text.splitlines()) for text in sources.values()),
        functions=sizes(one for text in sources.values() for one in function_lines(text)),
        largest_folders=dict(side_by_side.most_common(8)),
        imports={one: folder_imports(one, sources) for one in folders},
        policy_comparisons={module: count for module, count in compared.items() if count},
        policy_files={policy: sorted(files[policy]) for policy in UNAMBIGUOUS},
        unresolved_ids=unresolved(root),
    )


def table(found: Figures) -> str:
    """Return the figures as text within 80 columns."""
    lines = ["SIZES                                   count     median     p90"]
    for name, one in (("modules, lines", found.modules), ("functions, lines", found.functions)):
        lines.append(f"{name:<36} {one.count:>8} {one.median:>10} {one.p90:>7}")
    lines += ["", "LARGEST FOLDERS                  modules side by side"]
    lines += [f"{name:<36} {count:>8}" for name, count in found.largest_folders.items()]
    lines += ["", "IMPORTS WITHIN FOLDERS                modules     levels  arrows"]
    for name, folder in found.imports.items():
        lines.append(f"{name:<36} {folder.modules:>8} {folder.levels:>10} {folder.arrows:>7}")
    compared = found.policy_comparisons
    count = f"{sum(compared.values())} in {len(compared)} files"
    lines += ["", f"comparisons of policy names          {count}"]
    for policy, files in found.policy_files.items():
        lines.append(f"files that name {policy:<20} {len(files)}")
    ids = found.unresolved_ids
    lines.append(
        f"unresolved ids                       {len(ids)}, cited {sum(ids.values())} times"
    )
    return "\n".join(line[:WIDTH].rstrip() for line in lines)


def main(arguments: list[str] | None = None) -> None:
    """Print the figures, or a sample of sentences for a reader to judge."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.figures", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "root", nargs="?", type=Path, default=Path(), help="the tree; default: the current folder"
    )
    parser.add_argument(
        "--json", action="store_true", help="print everything as JSON, lists of files included"
    )
    parser.add_argument(
        "--sample",
        type=int,
        metavar="N",
        help=f"print N docstring sentences (usual: {DOCSTRINGS}) and {PAGES} sentences of pages",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="S", help="seed of the sample; default: 1"
    )
    chosen = parser.parse_args(arguments)
    if chosen.sample is None:
        found = figures(chosen.root)
        text = json.dumps(asdict(found), indent=2) if chosen.json else table(found)
    else:
        drawn = {
            "docstrings": sample(
                docstring_sentences(read(chosen.root)), chosen.sample, chosen.seed
            ),
            "pages": sample(page_sentences(chosen.root), PAGES, chosen.seed),
        }
        listed = [f"{place}: {one}" for rows in drawn.values() for place, one in rows]
        text = json.dumps(drawn, indent=2) if chosen.json else "\n".join(listed)
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
