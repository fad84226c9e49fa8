"""Revisions of the configuration: which of several applies succeeds, and what a text that is sent twice does not undo."""

from dataclasses import replace

from server.config import load
from server.core.core import Core
from server.core.events.configuration import GIVEN_MAX, PAST_CHARACTERS_MAX, PAST_MAX, past
from server.model.decisions import Noted
from server.model.events import ConfigurationApplied, ManagerRegistered
from server.model.quota import Configuration
from server.model.reasons import Code
from server.model.revisions import ANY_BASE, Base

NOW = 1_700_000_000_000
APPLIED = Code.CONFIGURATION_APPLIED
REFUSED = Code.CONFIGURATION_REFUSED
STALE = Code.CONFIGURATION_STALE


def text(*leaves: str) -> str:
    listed = ", ".join(f"{{name: {leaf}}}" for leaf in leaves)
    return f"partitions: [{{name: default, queues: [{{name: root, queues: [{listed}]}}]}}]\n"


def made(*leaves: str) -> Configuration:
    configuration, problems = load(text(*leaves), "test")
    assert configuration is not None, problems
    return configuration


def apply(core: Core, *leaves: str, base: Base = ANY_BASE, rm_id: str = "", by: str = "") -> Code:
    event = ConfigurationApplied(made(*leaves), "test", rm_id, base, by)
    return code(core.handle(event, NOW))


def register(core: Core, rm_id: str, *leaves: str) -> Code | None:
    decisions = core.handle(ManagerRegistered(rm_id, configuration=made(*leaves)), NOW)
    found = [one.code for one in decisions if isinstance(one, Noted)]
    return next((one for one in found if one in {APPLIED, REFUSED, STALE}), None)


def code(decisions: object) -> Code:
    assert isinstance(decisions, list)
    (note,) = [one for one in decisions if getattr(one, "code", None) in {APPLIED, REFUSED, STALE}]
    assert isinstance(note, Noted)
    return note.code


def queues(core: Core) -> set[str]:
    return {queue.name for queue in core.state.configuration.partitions[0].root.children}


def number(core: Core) -> int:
    return core.state.revision.number


def test_the_number_rises_with_each_other_digest() -> None:
    core = Core()
    assert number(core) == 1
    for expected, leaf in ((2, "a"), (2, "a"), (3, "b"), (4, "a")):
        assert apply(core, leaf) is APPLIED
        assert number(core) == expected


def test_of_two_applies_from_one_base_the_second_changes_nothing() -> None:
    core = Core(made("a"))
    base = Base(number(core), core.state.revision.digest)
    assert apply(core, "a", "b", base=base, by="ada") is APPLIED
    before = core.digest()
    assert apply(core, "a", "c", base=base, by="bob") is STALE
    assert core.digest() == before
    assert core.state.revision.by == "ada"
    assert queues(core) == {"a", "b"}


def test_a_number_alone_is_a_base_too() -> None:
    core = Core()
    assert apply(core, "a", base=Base(1)) is APPLIED
    assert apply(core, "b", base=Base(1)) is STALE
    assert apply(core, "b", base=Base(2)) is APPLIED


def test_a_configuration_that_is_in_force_is_never_stale() -> None:
    core = Core()
    assert apply(core, "a", base=Base(1)) is APPLIED
    assert apply(core, "a", base=Base(1)) is APPLIED, "as when the first answer was lost"
    assert number(core) == 2


def test_a_digest_has_the_last_word_over_a_number() -> None:
    core = Core(made("a"))
    assert apply(core, "b", base=Base(7, made("a").digest)) is APPLIED
    assert apply(core, "c", base=Base(2, made("a").digest)) is STALE


def test_the_last_few_configurations_are_kept_for_comparisons() -> None:
    core = Core()
    for leaf in "abcdefghijklmnop":
        apply(core, leaf)
    last = number(core)
    assert past(core.state, Base(last)) is core.state.configuration
    assert past(core.state, Base(last - PAST_MAX)) is not None
    assert past(core.state, Base(last - PAST_MAX - 1)) is None
    assert past(core.state, Base(1, made("o").digest)) is not None


def test_large_texts_are_not_kept() -> None:
    core = Core(replace(made("z"), text="#" * (PAST_CHARACTERS_MAX + 1)))
    apply(core, "a")
    assert past(core.state, Base(1)) is None


def test_a_manager_that_comes_back_does_not_undo_what_was_applied_meanwhile() -> None:
    core = Core()
    assert register(core, "rm", "a") is APPLIED
    assert apply(core, "b", by="ada") is APPLIED
    assert register(core, "rm", "a") is REFUSED
    assert apply(core, "a", rm_id="rm") is REFUSED
    assert queues(core) == {"b"}


def test_a_manager_whose_text_changed_overrides_what_was_applied() -> None:
    core = Core()
    register(core, "rm", "a")
    apply(core, "b")
    assert apply(core, "c", rm_id="rm") is APPLIED
    apply(core, "d")
    assert register(core, "rm", "e") is APPLIED
    assert queues(core) == {"e"}
    apply(core, "d")
    assert register(core, "rm", "a") is APPLIED, "an older text is a change, too"


def test_the_first_session_of_a_manager_does_not_either() -> None:
    core = Core()
    apply(core, "b")
    assert apply(core, "a", rm_id="rm") is REFUSED
    assert apply(core, "c", rm_id="rm") is APPLIED, "a text that was changed since counts"


def test_the_first_registration_does_not_undo_what_an_operator_applied() -> None:
    core = Core()
    apply(core, "b")
    assert register(core, "rm", "a") is REFUSED
    assert register(core, "rm", "a") is REFUSED
    assert register(core, "rm", "c") is APPLIED


def test_a_refusal_names_what_is_in_force() -> None:
    core = Core()
    register(core, "rm", "a")
    apply(core, "b", by="ada")
    event = ConfigurationApplied(made("a"), "ConfigMap ns/map", "rm")
    (note,) = core.handle(event, NOW)
    assert isinstance(note, Noted)
    assert "revision 3 by ada (2023-11-14 22:13:20 UTC) stays in force until" in note.message


def test_managers_without_number_are_not_remembered() -> None:
    core = Core()
    for one in range(GIVEN_MAX + 9):
        apply(core, f"a{one % 2}", rm_id=f"rm{one}")
    assert len(core.state.given) == GIVEN_MAX
    assert f"rm{GIVEN_MAX + 8}" in core.state.given
