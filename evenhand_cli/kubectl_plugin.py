"""The plugin of kubectl: `kubectl evenhand COMMAND` runs a command of `evenhand` inside the container of a core.

The container has the core's address and an operator's certificate, so that the user needs no port-forward and no
client certificate. The right to `pods/exec` in the core's namespace is enough. With `--core`, `--cores` or
EVENHAND_CORE the command runs on the user's machine and calls that core.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from evenhand_cli import app, terminal
from evenhand_cli.faults import ExitCode, Fault

SELECTOR: Final = "app.kubernetes.io/name=evenhand-core"
CONTAINER: Final = "core"
ADDRESSES: Final = ("--core", "--cores")
FLAGS: Final = {
    "-n": "--namespace",
    "-l": "--selector",
    "-s": "--server",
    "--as": "--as",
    "--as-group": "--as-group",
    "--certificate-authority": "--certificate-authority",
    "--cluster": "--cluster",
    "--context": "--context",
    "--kubeconfig": "--kubeconfig",
    "--namespace": "--namespace",
    "--request-timeout": "--request-timeout",
    "--selector": "--selector",
    "--server": "--server",
    "--token": "--token",
    "--user": "--user",
}
"""The flags that may stand before the command, each with its long form.

All flags except `--selector` are passed to kubectl.
"""
HELP: Final = f"""\
Usage: kubectl evenhand [FLAGS OF KUBECTL] COMMAND [ARGUMENTS]

Run a command of evenhand inside the container of a core.

Examples:
  kubectl evenhand queues
  kubectl evenhand explain default/hello
  kubectl evenhand --context prod -n evenhand doctor
  kubectl evenhand config check - < queues.yaml

The plugin asks kubectl for pods with the label
{SELECTOR},
and executes the command in one of them. `-l` names another label, `-n` the
namespace of one of several installations. Flags of kubectl stand before the
command, those of evenhand behind it. A file of this machine is not in the
container: `-` reads it from the standard input. With --core, --cores or
EVENHAND_CORE the command runs on this machine, as `evenhand COMMAND` does.

All commands: kubectl evenhand help
"""


class Words(NamedTuple):
    """A command line of the plugin: the flags for kubectl, the label of the cores, and the words for evenhand."""

    kubectl: tuple[str, ...]
    namespace: str
    selector: str
    evenhand: tuple[str, ...]


def split(words: Sequence[str]) -> Words:
    """Return the parts of a command line. The flags for kubectl end at the first word that is no such flag.

    Raises Fault if the last flag has no value.
    """
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        flag, equals, value = rest[0].partition("=")
        if flag not in FLAGS:
            break
        del rest[0]
        if not equals:
            if not rest:
                raise Fault(f"{flag} needs a value", code=ExitCode.USAGE)
            value = rest.pop(0)
        found[FLAGS[flag]] = value
    namespace = found.pop("--namespace", "")
    selector = found.pop("--selector", SELECTOR)
    kubectl = tuple(f"{flag}={value}" for flag, value in found.items())
    return Words(kubectl, namespace, selector, tuple(rest))


def runs_here(words: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Return whether the command names its core, and so runs on the user's machine."""
    named = any(word.partition("=")[0] in ADDRESSES for word in words)
    return named or bool(variables.get("EVENHAND_CORE") or variables.get("EVENHAND_CORES"))


def chosen(pods: Sequence[Mapping[str, Any]], selector: str) -> tuple[str, str]:
    """Return namespace and name of the pod in which the command runs: a core that is ready, or else a core that runs.

    Raises Fault if no core runs, or if several namespaces have cores.

    If several cores run, the pod of any of these cores can be used. The command then finds the core that leads.
    """
    namespaces = sorted({pod["metadata"]["namespace"] for pod in pods})
    if not pods:
        raise Fault(
            f"no pod has the label {selector}",
            advice="Install Evenhand, or name the label of its cores with -l.",
            code=ExitCode.UNREACHABLE,
        )
    if len(namespaces) > 1:
        raise Fault(
            f"there are cores in several namespaces: {', '.join(namespaces)}",
            advice="Name the one in which Evenhand was installed, with -n: everybody who may create pods can label one so.",
            code=ExitCode.USAGE,
        )
    ranked = sorted(pods, key=lambda pod: (not _is_ready(pod), pod["metadata"]["name"]))
    first = ranked[0]["metadata"]
    if ranked[0].get("status", {}).get("phase") != "Running":
        raise Fault(
            f"no core runs: {first['name']} is {ranked[0].get('status', {}).get('phase', 'unknown')}",
            advice=f"See why: kubectl -n {first['namespace']} describe pod {first['name']}",
            code=ExitCode.UNREACHABLE,
        )
    return first["namespace"], first["name"]


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _pods(kubectl: str, words: Words) -> list[Mapping[str, Any]]:
    """Return the pods of the cores. Raises Fault with the error message of kubectl."""
    where = f"--namespace={words.namespace}" if words.namespace else "--all-namespaces"
    command = [kubectl, *words.kubectl, "get", "pods", where, f"--selector={words.selector}"]
    done = subprocess.run([*command, "--output=json"], capture_output=True, text=True, check=False)  # noqa: S603 -- the user's own words.
    if done.returncode != 0:
        raise Fault(
            done.stderr.strip() or "kubectl failed",
            where=" ".join(command[1:]),
            advice="If you may not list the pods of all namespaces, name that of the core with -n.",
            code=ExitCode.UNREACHABLE,
        )
    found: list[Mapping[str, Any]] = json.loads(done.stdout)["items"]
    return found


def _kubectl() -> str:
    """Return the path of kubectl. Raises Fault if kubectl is not installed."""
    found = shutil.which("kubectl")
    if found is None:
        raise Fault("kubectl is not here", advice="Install kubectl, or name a core with --core.")
    return found


def command(kubectl: str, words: Words) -> list[str]:
    """Return the command that kubectl executes in the container of a core.

    Raises Fault if kubectl fails, if no core runs, or if several namespaces have cores.
    """
    namespace, pod = chosen(_pods(kubectl, words), words.selector)
    streams: tuple[str, ...] = ()
    if "-" in words.evenhand:
        streams = ("--stdin",)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        streams = ("--stdin", "--tty")
    where = (f"--namespace={namespace}", pod, f"--container={CONTAINER}")
    return [kubectl, *words.kubectl, "exec", *where, *streams, "--", "evenhand", *words.evenhand]


def main() -> None:
    """Run the plugin; the entry point of the program `kubectl-evenhand`, which kubectl finds by its name."""
    try:
        words = split(sys.argv[1:])
        if not words.evenhand or words.evenhand[0] in {"-h", "--help"}:
            sys.stdout.write(HELP)
            return
        if runs_here(words.evenhand, os.environ):
            sys.argv[1:] = words.evenhand
            app.main()
            return
        line = command(_kubectl(), words)
    except Fault as fault:
        terminal.show_fault(fault)
        raise SystemExit(int(fault.code)) from fault
    os.execv(line[0], line)  # noqa: S606 -- kubectl replaces this process, and its exit code is that of the command.


if __name__ == "__main__":
    main()
