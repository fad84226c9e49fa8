"""No code compares names of preemption policies: it asks the table `server/model/policies.py` for a fact.

The search reads syntax trees. A comparison is refused when one of its sides is a policy's name, a row of the table, a
constant that holds one of these in any module, or a literal collection of them.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, get_args

import pytest

from server.core.preemption.rounds import PLANNERS
from server.model import comparing, policies
from tests.tidy.test_shape import MODULES, ROOT

TABLE: Final = "server.model.policies"
NAMES: Final = frozenset(one.name for one in policies.TABLE)
ROWS: Final = frozenset(
    name for name, value in vars(policies).items() if isinstance(value, policies.PolicyFacts)
)
OTHER_MEANINGS: Final = {
    "cross_node": "a value of the setting `crossnode`",
    "key": "a key of a list by which victims are compared",
}
"""What a policy's name means beside a name or attribute: no policy."""

Constants = dict[str, set[str]]
"""By module the names at its top level that hold a policy's name, a row, or a display of these."""


class Reader:
    """The syntax tree of one module, and what its names mean."""

    def __init__(self, module: str, source: str, known: Constants) -> None:
        self.module = module
        self.tree = ast.parse(source)
        self.known = known
        self.imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def holds(self, node: ast.expr) -> bool:
        """Return whether an expression is a policy's name, a row, or a collection with one of these in it."""
        match node:
            case ast.Constant(value=value):
                return value in NAMES
            case ast.Attribute(value=row, attr="name") if self._is_constant(row):
                return True
            case ast.Name() | ast.Attribute():
                return self._is_constant(node)
            case ast.Tuple(elts=parts) | ast.Set(elts=parts) | ast.List(elts=parts):
                return any(self.holds(one) for one in parts if not isinstance(one, ast.Tuple))
            case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[only]):
                return self.holds(only)
        return False

    def _is_constant(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                where = self.imported.get(name, f"{self.module}.{name}")
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in self.imported:
                where = f"{self.imported[module]}.{name}"
            case _:
                return False
        module, _, name = where.rpartition(".")
        return name in self.known.get(module, ()) or (module == TABLE and name in ROWS)

    def constants(self) -> set[str]:
        """Return the names at the top level that hold a policy's name, a row, or a display of these."""
        found = set()
        for node in self.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self.holds(value):
                    found.add(name)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    if self.holds(value):
                        found.add(name)
        return found

    def comparisons(self) -> Iterator[int]:
        """Yield the lines at which a policy's name is compared, matched or looked up."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Compare():
                    if self._is_refused([node.left, *node.comparators]):
                        yield node.lineno
                case ast.MatchValue(value=value) if self.holds(value):
                    yield value.lineno
                case ast.Dict(keys=keys) if len(keys) > 1:
                    if all(key is not None and self.holds(key) for key in keys):
                        yield node.lineno

    def _is_refused(self, sides: list[ast.expr]) -> bool:
        """Return whether a comparison is one of policies. A tuple on its left is the key of a cache, and may hold a name."""
        first, *others = sides
        first_is_key = isinstance(first, ast.Tuple)
        words = (
            one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in sides
        )
        if any(word in OTHER_MEANINGS for word in words):
            return False
        return any(self.holds(one) for one in (others if first_is_key else sides))


def compared(sources: Mapping[str, str]) -> list[str]:
    """Return where modules, given by name, compare a policy's name."""
    known: Constants = {}
    readers = [Reader(module, source, known) for module, source in sources.items()]
    grown = True
    while grown:
        before = sum(map(len, known.values()))
        known |= {one.module: one.constants() for one in readers}
        grown = sum(map(len, known.values())) > before
    return [
        f"{one.module}:{line}"
        for one in readers
        if one.module != TABLE
        for line in one.comparisons()
    ]


def _sources() -> dict[str, str]:
    paths = {path: path.relative_to(ROOT).with_suffix("") for path in MODULES}
    return {".".join(name.parts): Path(path).read_text() for path, name in paths.items()}


def test_no_module_compares_names_of_policies() -> None:
    assert compared(_sources()) == [], "ask a row of server/model/policies.py for a fact instead"


@pytest.mark.parametrize(
    "line",
    [
        'if plan.policy == "trim": ...',
        'if "guaranteed" != plan.policy: ...',
        'if plan.policy in {"quota", "trim"}: ...',
        'if plan.policy not in ("job", other): ...',
        "if plan.policy == plans.NAME: ...",
        "if plan.policy == NAME: ...",
        "if plan.policy in plans.BOUND: ...",
        "if facts(plan.policy) is policies.JOB: ...",
        "if plan.policy == policies.JOB.name: ...",
        "if TRIM.name in settings.policies: ...",
        "if TRIM in (one, other): ...",
        'match plan.policy:\n    case "job": ...',
        'LETTERS = {"quota": "q", "trim": "t"}[plan.policy]',
        'LETTERS = {TRIM.name: "t", plans.NAME: "q"}[plan.policy]',
    ],
)
def test_a_comparison_is_found(line: str) -> None:
    imports = (
        "from server.model import policies\n"
        "from server.model.policies import TRIM\n"
        "from some import plans\n"
        "from some.plans import NAME\n"
    )
    plans = (
        "from server.model.policies import QUOTA\n"
        "NAME = QUOTA.name\n"
        'BOUND: Final = frozenset({NAME, "job"})\n'
    )
    at = 5 + line.count("\n")
    assert compared({"mine": imports + line, "some.plans": plans}) == [f"mine:{at}"]


@pytest.mark.parametrize(
    "line",
    [
        "if settings.lists(TRIM): ...",
        "if facts(plan.policy).gang: ...",
        'if settings.cross_node == "quota": ...',
        "if (TRIM.name, ask.key) in kept: ...",
        "if plan.policy == other.policy: ...",
    ],
)
def test_a_question_for_a_fact_is_none(line: str) -> None:
    assert compared({"mine": f"from server.model.policies import TRIM\n{line}"}) == []


# The table ------------------------------------------------------------------------------------------------------------


def test_no_two_policies_share_a_name_or_a_letter() -> None:
    names = [one.name for one in policies.TABLE]
    letters = [one.letter for one in policies.TABLE if one.letter]
    assert len(set(names)) == len(names)
    assert len(set(letters)) == len(letters)


def test_a_policy_that_evicts_has_a_letter_so_that_a_restart_knows_its_decisions() -> None:
    for one in policies.TABLE:
        assert bool(one.letter) == (one.scope is not policies.Scope.NONE), one.name


def test_each_order_of_victims_has_a_name_of_its_own_and_known_keys() -> None:
    assert {one.order for one in policies.TABLE} == set(policies.ORDERS)
    names = [one.name for one in policies.ORDERS]
    assert len(set(names)) == len(names)
    assert {key for one in policies.ORDERS for key in one.fixed + one.usual} <= {
        *get_args(comparing.Key)
    }


def test_each_listed_policy_is_planned_in_rounds() -> None:
    assert {one.name for one in policies.TABLE if one.listed or one.reserves} == set(PLANNERS)
