"""The plugin of kubectl: which flags belong to kubectl, and which pod is asked."""

from typing import Any

import pytest

from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.kubectl_plugin import HELP, SELECTOR, Words, chosen, runs_here, split


def pod(
    name: str, *, namespace: str = "evenhand", phase: str = "Running", ready: bool = True
) -> Any:
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
    return {"metadata": {"name": name, "namespace": namespace}, "status": status}


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("queues", Words((), "", SELECTOR, ("queues",))),
        ("-n a queues -n b", Words((), "a", SELECTOR, ("queues", "-n", "b"))),
        ("--context=x queues", Words(("--context=x",), "", SELECTOR, ("queues",))),
        ("--context x -l a=b queues", Words(("--context=x",), "", "a=b", ("queues",))),
        ("--output json queues", Words((), "", SELECTOR, ("--output", "json", "queues"))),
        ("queues --context x", Words((), "", SELECTOR, ("queues", "--context", "x"))),
        ("", Words((), "", SELECTOR, ())),
    ],
)
def test_flags_of_kubectl_stand_before_the_command(line: str, parts: Words) -> None:
    assert split(line.split()) == parts


def test_a_flag_without_a_value_is_refused() -> None:
    with pytest.raises(Fault, match="--context needs a value") as raised:
        split(["--context"])
    assert raised.value.code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("words", "variables", "here"),
    [
        (["queues"], {}, False),
        (["queues", "--core", "a:1"], {}, True),
        (["--core=a:1", "queues"], {}, True),
        (["queues", "--cores=cores.yaml"], {}, True),
        (["queues"], {"EVENHAND_CORE": "a:1"}, True),
        (["queues"], {"EVENHAND_CORE": ""}, False),
        (["health", "--core-only"], {}, False),
    ],
)
def test_a_command_that_names_a_core_runs_here(
    words: list[str], variables: dict[str, str], *, here: bool
) -> None:
    assert runs_here(words, variables) is here


def test_a_ready_core_is_asked_before_one_that_is_not() -> None:
    pods = [pod("core-0", ready=False), pod("core-1"), pod("core-2", phase="Pending", ready=False)]
    assert chosen(pods, SELECTOR) == ("evenhand", "core-1")
    assert chosen(pods[:1], SELECTOR) == ("evenhand", "core-0")


@pytest.mark.parametrize(
    ("pods", "what", "code"),
    [
        ([], "no pod has the label", ExitCode.UNREACHABLE),
        ([pod("core", phase="Pending", ready=False)], "core is Pending", ExitCode.UNREACHABLE),
        ([pod("a"), pod("b", namespace="other")], "evenhand, other", ExitCode.USAGE),
    ],
)
def test_without_one_core_to_ask_the_message_says_what_to_do(
    pods: list[Any], what: str, code: ExitCode
) -> None:
    with pytest.raises(Fault, match=what) as raised:
        chosen(pods, SELECTOR)
    assert raised.value.code == code
    assert raised.value.advice


def test_no_namespace_is_recommended_that_a_tenant_may_have_labelled() -> None:
    with pytest.raises(Fault) as raised:
        chosen([pod("core"), pod("decoy", namespace="a-tenant")], SELECTOR)
    assert "a-tenant" not in raised.value.advice


def test_the_help_fits_a_terminal() -> None:
    assert max(map(len, HELP.splitlines())) <= 80
