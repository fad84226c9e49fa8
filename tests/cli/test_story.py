"""`evenhand story`: pages, stories and pasted blocks run on a core in the process; what does not hold, and hostile input."""

import json
import os
import pty
import random
import re
import select
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path
from typing import Any, Final

import pytest

from evenhand_cli.faults import Fault
from evenhand_cli.story.form import Step
from evenhand_cli.story.happenings import happening
from evenhand_cli.story.play import Player
from evenhand_cli.story.reading import read_examples
from evenhand_cli.story.words import TYPES, VERBS
from tests.cli.processes import SECONDS_MAX, environment
from tests.cli.run import Ended, evenhand
from tests.cli.test_completion import completed
from tests.docs.pages import DOCS
from tests.effort import cases

WIDTH: Final = 80
QUICK_S: Final = 20.0
"""Seconds in which hostile input is refused, on a busy machine, too."""
QUEUES: Final = """\
partitions:
  - name: default
    preemption: {policies: [required-node, guaranteed]}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: shop
            resources: {guaranteed: {vcore: 4}}
            properties: {preemption.delay: 10s}
          - name: batch
            resources: {max: {vcore: 8}}
"""
LOWERED: Final = QUEUES.replace("max: {vcore: 8}", "max: {vcore: 6}")
FIRST: Final = """\
- at: 0
  do:
    - node node-1 vcore=8000
    - app web root.shop
    - app crunch root.batch
    - existing crunch-1..crunch-4 crunch node-1 vcore=2000
    - ask web-1 web vcore=2000 priority=5
  then: []
  waits: {web-1: no-node}
- at: 10000
  then: [guaranteed for web-1 on node-1 ordered, crunch-1 is evicted for web-1 on node-1 ~ over its guarantee]
"""
SECOND: Final = """\
- at: 12500
  do: [confirm crunch-1]
  then:
    - configuration-applied story
    - guaranteed for web-1 on node-1 confirmed
    - web-1 on node-1
    - guaranteed for web-1 on node-1 fulfilled
"""
PAGE: Final = f"""\
# A page

```console
$ evenhand queues
```

## The shop opens

```yaml queues
{QUEUES}```

Some words.

```yaml story
{FIRST}```

```yaml queues applied
{LOWERED}```

```yaml story
{SECOND}```

## Nothing happens

```yaml queues
{QUEUES}```

```yaml story
- at: 0
  then: []
```
"""


def run(folder: Path, text: str, *more: str, name: str = "page.md", width: int = WIDTH) -> Ended:
    """Run a file with this text."""
    (folder / name).write_text(text, "utf-8")
    with chdir(folder):
        return evenhand("story", name, *more, width=width)


def with_steps(steps: str) -> str:
    """Return pasted blocks: the queues, the first steps, and these."""
    return f"{QUEUES}{FIRST}{steps}"


def test_a_page_tells_what_happens_what_is_decided_and_why(tmp_path: Path) -> None:
    ended = run(tmp_path, PAGE, "--only", "1")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "1 The shop opens  page.md"
    assert "  root.shop: guaranteed 4 cores; preemption.delay 10s" in lines
    assert "  root.batch: max 8 cores" in lines
    told = " ".join(ended.out.split())
    for part in (
        "0 s node-1 joins with 8 cores; application web in root.shop; application crunch in root.batch;"
        " crunch-1 to crunch-4 of crunch run on node-1 with 2 cores each;"
        " web-1 of web asks for 2 cores (priority 5)"
        " - web-1 waits: no node that could hold it has enough free capacity now (no-node)",
        "10 s - guaranteed: crunch-1 of root.batch is evicted from node-1 for web-1 of root.shop"
        " why: root.shop held 0/4 cores guaranteed; root.batch held 8 cores, no guarantee, max 8;",
        "its queue is over its guarantee",
        "12.5 s configuration: queue root.batch: max.vcore 8 -> 6 (what runs above it stays until it ends);"
        " the eviction of crunch-1 has ended",
        "- web-1 is placed on node-1 holds: 4 expectations in 3 steps rules: G4, G5; what one says: `evenhand explain G4`",
    ):
        assert part in told
    assert max(map(len, lines[1:])) <= WIDTH


def test_in_brief_each_decision_has_a_line_with_its_rules(tmp_path: Path) -> None:
    ended = run(tmp_path, PAGE, "--only", "the SHOP", "--brief", width=100)
    assert ended.out == (
        "0 s     web-1 waits (no-node)\n"
        "10 s    guaranteed: crunch-1 of root.batch is evicted from node-1 for web-1 of root.shop (G4, G5)\n"
        "12.5 s  web-1 is placed on node-1\n"
        "holds: 4 expectations in 3 steps\n"
    )


def test_all_stories_of_a_page_run_one_after_the_other(tmp_path: Path) -> None:
    ended = run(tmp_path, PAGE, "--brief")
    assert ended.code == 0
    titles = [line.split("  ")[0] for line in ended.out.splitlines() if line.endswith("page.md")]
    assert titles == ["1 The shop opens", "2 Nothing happens"]
    assert "0 s  nothing is decided\nholds: 1 expectation in 1 step\n" in ended.out
    assert ended.out.endswith("\n2 of 2 stories hold\n")


def test_full_explanations_are_those_of_explain(tmp_path: Path) -> None:
    ended = run(tmp_path, PAGE, "--only", "1", "--explain", width=110)
    assert ended.code == 0
    assert "web-1  waiting ask  partition default" in ended.out
    assert "nearest node  node-1, which lacks 2 cores" in ended.out
    assert re.search(r"g-[0-9a-f]+-\d+ *(decision|  decision)", ended.out)
    assert "policy  guaranteed, decided 0.0 s ago" in ended.out


@pytest.mark.parametrize(
    "text",
    [
        f"{QUEUES}{FIRST}{LOWERED}{SECOND}",
        f"# my example\n{QUEUES}\n{FIRST}\n---\n{LOWERED}\n---\n{SECOND}",
        f"```yaml queues\n{QUEUES}```\n```yaml story\n{FIRST}```\n```yaml queues applied\n{LOWERED}```\n"
        f"```yaml story\n{SECOND}```\n",
        f"{QUEUES}{FIRST}{LOWERED}{SECOND}".replace("\n", "\r\n"),
    ],
    ids=["as copied", "as documents", "with backquotes", "from Windows"],
)
def test_copied_blocks_run_from_the_standard_input(text: str, tmp_path: Path) -> None:
    of_page = run(tmp_path, PAGE, "--only", "1", "--brief")
    pasted = evenhand("story", "-", "--brief", width=WIDTH, given=text)
    assert (pasted.code, pasted.err) == (0, "")
    assert pasted.out == of_page.out


STORY: Final = """\
- title: One pod
  rule: G1, the delay
  queues: [{name: a}]
  steps:
    - at: 0
      do: [node n1 vcore=1000, app x root.a, ask x1 x vcore=1000]
      then: [x1 on n1]
"""


def test_stories_in_yaml_run(tmp_path: Path) -> None:
    ended = run(tmp_path, STORY, name="own.yaml")
    assert ended.code == 0
    assert ended.out.startswith("1 One pod  G1, the delay  ")
    single = "\n".join(line[2:] for line in STORY.splitlines())
    assert run(tmp_path, single, name="own.yaml").out == ended.out


def test_the_value_has_everything(tmp_path: Path) -> None:
    ended = run(tmp_path, PAGE, "-o", "json")
    assert (ended.code, ended.err) == (0, "")
    value = ended.value()
    assert value["holds"] is True
    first, second = value["stories"]
    assert (first["title"], first["expectations"], second["number"]) == ("The shop opens", 4, 2)
    step = first["steps"][1]
    assert (step["at_ms"], step["holds"], step["failed"]) == (10_000, True, [])
    (decision,) = step["preemption"]
    assert [one["allocation_key"] for one in decision["victims"]] == ["crunch-1"]
    assert {"decision": "crunch-1 is evicted for web-1 on node-1"}.items() <= {
        key: one for each in step["decisions"] for key, one in each.items() if "evicted for" in one
    }.items()
    assert first["steps"][2]["changes"] == [
        "queue root.batch: max.vcore 8 -> 6 (what runs above it stays until it ends)"
    ]


def test_what_does_not_hold_is_told_with_wanted_and_found(tmp_path: Path) -> None:
    steps = "- at: 11000\n  then: [crunch-2 is evicted for web-1 on node-1]\n  usage: {root.batch: {vcore: 1}}\n"
    ended = run(tmp_path, with_steps(steps), name="own.yaml")
    assert ended.code == 1
    assert (
        "11 s  - nothing is decided\n"
        "      ! then does not hold\n"
        "        wanted: crunch-2 is evicted for web-1 on node-1\n"
        "        found:  nothing\n"
        "      ! usage root.batch does not hold\n"
        "        wanted: vcore: 1\n"
        "        found:  vcore: 8000\n"
        "does not hold: 2 of 5 expectations, at 11 s (line 24)\n"
    ) in ended.out
    (failed,) = [
        one
        for one in run(tmp_path, with_steps(steps), "-o", "json").value()["stories"][0]["steps"]
        if one["failed"]
    ]
    assert failed["failed"][0] == {
        "what": "then",
        "wanted": ["crunch-2 is evicted for web-1 on node-1"],
        "found": [],
    }


WRONG: Final[dict[str, str]] = {
    "then": "[x1 on n1]",
    "shadow": "[x1 same n1]",
    "would": "{web-1: over-guarantee}",
    "reserved": "{node-1: [web-9]}",
    "waits": "{web-1: queue-limit}",
    "verdicts": "{web-1: over-guarantee}",
    "spared": "{web-1: [no-such-rule root.batch]}",
    "stood": "{crunch-2: [no-such-rule]}",
    "taken_from": "{web-1: [root.shop vcore 1 over 2]}",
    "usage": "{root.batch: {vcore: 1}}",
    "promised": "{root.shop: {vcore: 1}}",
    "leaving": "{root.batch: {vcore: 1}}",
    "deserved": "{root.batch: {vcore: 1}}",
    "entitled": "{root.batch: {vcore: 1}}",
    "allocated": "{root.batch: {vcore: 1}}",
    "preempting": "{root.batch: {vcore: 1}}",
    "standing": "{root.batch: {vcore: over}}",
    "limits": "{root.batch: {vcore: 1}}",
    "guaranteed": "{root.shop: {vcore: 1}}",
    "states": "{root.shop: draining}",
    "applications": "{web: root.shop Failed}",
    "free": "{node-1: {vcore: 1}}",
    "due": "1",
}


def test_every_key_of_a_step_has_a_wrong_value_here() -> None:
    assert set(WRONG) == set(Step.model_fields) - {"at", "do", "queues", "partition"}


@pytest.mark.parametrize("key", WRONG)
def test_no_wrong_expectation_is_taken_for_one_that_holds(key: str, tmp_path: Path) -> None:
    ended = run(tmp_path, with_steps(f"- at: 11000\n  {key}: {WRONG[key]}\n"), name="own.yaml")
    assert ended.code == 1, ended.out
    assert f"! {key}" in ended.out


@pytest.mark.parametrize(
    ("steps", "line", "what", "advice"),
    [
        ("- at: 1\n  thn: []\n", 25, "unknown key `thn`", "did you mean `then`?"),
        ("- at: 1\n  then: []\n  then: []\n", 26, "is written twice", ""),
        ("- at: soon\n", 24, "at: input should be a valid integer", ""),
        ("- at: -1\n", 24, "greater than or equal to 0", ""),
        ("- at: 99999999999999\n", 24, "less than or equal to", ""),
        ("- at: 5\n", 24, "is before the step above it", "order of time"),
        ("- do: [confrm crunch-1]\n", 24, "unknown verb `confrm`", "did you mean `confirm`?"),
        ("- do:\n    - release crunch-1\n    - ask z web memry=1\n", 26, "`memry`", "did you mean `memory`?"),
        ("- do: [ask z web vcore=many]\n", 24, "`vcore` is a whole number, not `many`", ""),
        ("- do: [ask z web vcore=99999999999999999999]\n", 24, "whole number", ""),
        ("- do: [ask z web vcore=1 vcore=2]\n", 24, "stands twice", ""),
        ("- do: [ask z web protection=fim]\n", 24, "one of", "did you mean `firm`?"),
        ("- do: [ask z web allow-self=maybe]\n", 24, "one of yes, no", ""),
        ("- do: [release crunch-1 TIMOUT]\n", 24, "one of", "did you mean `TIMEOUT`?"),
        ("- do: [node n vcore=1 taint:a=b]\n", 24, "VALUE:EFFECT", ""),
        ("- do: [ask z web tolerate=a]\n", 24, "KEY:VALUE:EFFECT", ""),
        ("- do: [existing z web node-1 mark=a]\n", 24, "DECISION/BENEFICIARY/NODE", ""),
        ("- do: [ask]\n", 24, "a word is missing", ""),
        ("- do: ['']\n", 24, "unknown verb", ""),
        ("- do: [release a1..a99999999]\n", 24, "names 99,999,999 objects", ""),
        ("- do: [release a9..a1]\n", 24, "objects, not 1 to", ""),
        ("- then: [a\n", 25, "not valid YAML", ""),
        ("- at: 1\n  queues: [{name: b}]\n", 24, "a configuration in a step", "yaml queues applied"),
        ("partitions: [{name: default}]\n- at: 20000\n", 24, "queues: is missing", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_with_its_line(
    steps: str, line: int, what: str, advice: str, tmp_path: Path
) -> None:
    ended = run(tmp_path, with_steps(steps), name="own.yaml", width=200)
    assert (ended.code, ended.out) == (2, "")
    first, *rest = ended.err.splitlines()
    assert what in first
    assert rest[0].split() == ["where:", f"own.yaml:{line}"]
    assert advice in " ".join(rest[1:])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no story in this file"),
        ("just words\n", "no story in this file"),
        ("# A page\n\n```yaml\nkind: Pod\n```\n", "no story in this file"),
        (QUEUES, "no story in this file"),
        (FIRST, "steps before any configuration"),
        (f"```yaml story\n{FIRST}```\n", "a block `yaml story` before any configuration"),
        (f"```yaml queues\n{QUEUES}```\n```yaml story\n{FIRST}", "a block `yaml story` that is not closed"),
        (f"```yaml queues\n{QUEUES}```\n```yaml stories\n{FIRST}```\n", "unknown kind `yaml stories`"),
        ("- title: t\n", "the key `steps` is missing"),
        ("- steps: [{at: 0}]\n", "the key `title` is missing"),
        ("- title: t\n  also: [note]\n  steps: [{at: 0}]\n", "unknown kind `note`"),
        ("- title: t\n  queues: [{nam: a}]\n  steps: [{at: 0}]\n", "nam"),
        ("partitions: [{name: default, queues: [{name: root, resources: {max: {vcore: x}}}]}]\n- at: 0\n", "x"),
    ],
)  # fmt: skip
def test_a_file_without_a_story_is_refused(text: str, what: str, tmp_path: Path) -> None:
    ended = run(tmp_path, text, name="own.yaml", width=200)
    assert (ended.code, ended.out) == (2, "")
    assert what in ended.err
    assert "own.yaml:" in ended.err


def test_a_page_without_blocks_is_not_read_as_yaml(tmp_path: Path) -> None:
    page = "# A page\n\nIt says: nothing.\n"
    ended = run(tmp_path, page, name="page.md", width=200)
    assert (ended.code, ended.out) == (2, "")
    assert "no story in this file" in ended.err
    assert "page.md:1" in ended.err


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    missing = evenhand("story", str(tmp_path / "none.md"))
    assert (missing.code, missing.out) == (2, "")
    assert "no such file or directory" in missing.err
    file = tmp_path / "own.yaml"
    file.write_bytes(b"- title: \xff\xfe\n")
    assert evenhand("story", str(file)).code == 2


BOMB: Final = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghij", "bcdefghijk", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        f"- title: t\n  steps: [{{at: 0}}]\n  config: {'[' * 5_000}{']' * 5_000}\n",
        f"- title: t\n  steps:\n    - do: ['{'x' * 1_000_000}']\n",
        f"- title: t\n  steps:\n    - do: ['release {'1' * 1_500}..2']\n",
        "- title: t\n  steps:\n" + "    - at: 0\n" * 10_001,
        "- title: t\n  steps:\n    - do:\n" + "        - release a1..a10000\n" * 11,
        "```yaml queues\n" * 50_000,
        "- title: !!python/object/apply:os.system ['false']\n  steps: [{at: 0}]\n",
        f"- title: t\n  steps:\n    - at: 0\n      due: {'9' * 10_000}\n",
    ],
    ids=["aliases", "depth", "long line", "long row", "steps", "events", "blocks", "tag", "digits"],
)
def test_hostile_input_is_refused_quickly(text: str, tmp_path: Path) -> None:
    began = time.monotonic()
    ended = run(tmp_path, text, name="own.yaml")
    assert ended.code == 2, ended.out
    assert time.monotonic() - began < QUICK_S
    assert len(ended.err) < 4_000


def test_no_control_character_reaches_the_terminal(tmp_path: Path) -> None:
    text = (
        '- title: "a\\e[2Jb"\n  rule: "G1 \\e]0;x"\n  queues: [{name: a}]\n  steps:\n'
        '    - at: 0\n      do: ["node n\\e[1m vcore=5", "app x\\u202e root.a", "ask x1 x\\u202e vcore=9000"]\n'
        '      then: ["\\e[3m"]\n      waits: {"\\e[4m": "\\e[5m"}\n'
    )
    for more in ((), ("--brief",), ("--explain",), ("-o", "json"), ("-o", "yaml")):
        ended = run(tmp_path, text, *more, name="own.yaml")
        assert ended.code == 1
        assert not {"\x1b", "\u202e"} & set(ended.out + ended.err)
    unknown = run(tmp_path, text.replace("node n", "nod\\e[6m n"), name="own.yaml")
    assert unknown.code == 2
    assert "\x1b" not in unknown.err


def test_only_takes_a_number_a_title_or_a_part_of_one(tmp_path: Path) -> None:
    for only in ("2", "Nothing happens", "nothing"):
        assert "holds: 1 expectation in 1 step\n" in run(tmp_path, PAGE, "--only", only).out
    ended = run(tmp_path, PAGE, "--only", "nowhere")
    assert (ended.code, ended.out) == (2, "")
    assert "no story `nowhere`" in ended.err
    assert "2  Nothing happens" in ended.err


def test_options_without_effect_are_refused(tmp_path: Path) -> None:
    assert run(tmp_path, PAGE, "--brief", "--explain").code == 2
    assert run(tmp_path, PAGE, "-o", "name").code == 2
    ended = run(tmp_path, PAGE, "--step")
    assert (ended.code, ended.out) == (2, "")
    assert "--step needs a terminal" in ended.err


def test_step_waits_for_enter_before_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE, "utf-8")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "evenhand_cli", "story", "page.md", "--only", "1", "--step"]
    environ = environment(WIDTH)
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        first = _read_until(ours, "Enter for the next step")
        assert "web-1 waits" in first
        assert "10 s" not in first
        os.write(ours, b"\n")
        assert "crunch-1 of root.batch is evicted" in _read_until(ours, "Enter for the next step")
        os.write(ours, b"\n")
        assert "web-1 is placed on node-1" in _read_until(ours, "holds: 4 expectations")
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_terminal_says_how_a_paste_ends(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "evenhand_cli", "story", "-"]
    environ = environment(WIDTH)
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        _read_until(ours, "then press Ctrl-D")
        os.write(ours, f"{QUEUES}{FIRST}\n\x04".encode())
        _read_until(ours, "holds: 3 expectations in 2 steps")
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read_until(terminal: int, words: str) -> str:
    """Return what a terminal shows up to these words. Raises TimeoutError."""
    shown = b""
    while words.encode() not in shown:
        if not select.select([terminal], [], [], SECONDS_MAX)[0]:
            raise TimeoutError(shown)
        shown += os.read(terminal, 65_536)
    return shown.decode()


def test_numbers_and_titles_are_completed(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(PAGE, "utf-8")
    for shell, told in (
        ("fish", ["1\tThe shop opens", "2\tNothing happens"]),
        ("bash", ["1", "2"]),
    ):
        assert completed(f"evenhand story {file} --only ", shell) == (told, "")
    file.write_text("no story", "utf-8")
    assert completed(f"evenhand story {file} --only ", "fish") == ([], "")


def test_the_page_names_every_verb_and_every_key() -> None:
    page = re.sub(
        r"^```.*?^```$", "", (DOCS / "story.md").read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    names = {
        word for quoted in re.findall(r"`([^`]+)`", page) for word in re.findall(r"[\w-]+", quoted)
    }
    assert set(VERBS) - names == {"register", "synced"}
    assert set(Step.model_fields) - names == {"at"}


def test_every_verb_has_a_phrase() -> None:
    for verb in VERBS:
        assert happening(f"{verb} x1 memory=1")


class Dice:
    """Lines and steps that no author would write."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def word(self) -> str:
        names = [
            *VERBS,
            *TYPES,
            "n1",
            "x1..x3",
            "root.a",
            "label:a",
            "taint:b",
            "holding:c",
            "job",
            "port",
            "mark",
        ]
        values = [
            "",
            "1",
            "-1",
            str(2**63 - 1),
            str(-(2**63)),
            "a:b:c",
            "a|b",
            "yes",
            "n1",
            "NoSchedule",
            "=",
            "\x00",
        ]
        name = self.random.choice(
            [*names, "in", "above", "tolerate", "required-node", "started", "priority", "dying"]
        )
        return f"{name}={self.random.choice(values)}" if self.random.random() < 0.6 else name

    def line(self) -> str:
        verb = self.random.choice([*VERBS, self.word()])
        known = self.random.choice(["n1", "x1", "x", "x1..x3", self.word()])
        return " ".join([verb, known, *(self.word() for _ in range(self.random.randrange(5)))])

    def usable(self) -> str:
        """Return a line that can be read."""
        number = self.random.choice([0, 1, 5, -1, 2**62, 2**63 - 1, -(2**63 - 1)])
        return self.random.choice(
            [
                f"node n{self.random.randrange(3)} vcore={number} memory={number}",
                f"ask x{self.random.randrange(9)} x vcore={number} priority={number} created={number}",
                f"existing x{self.random.randrange(9)} x n1 vcore={number} started={number}",
                f"ask x{self.random.randrange(9)} x vcore=1 port={number} job=j/{abs(number)}",
                "app x root.a", "end x", "release x1", "confirm x1", "veto x1", "remove n1", "drain n1",
                "register rm", "synced rm", "release-all x", f"disruptions b {number}", f"app y root.a timeout={number}",
            ]
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(cases(200)))
def test_any_line_runs_or_is_refused(seed: int) -> None:
    dice = Dice(seed)
    lines = [dice.line() if dice.random.random() < 0.2 else dice.usable() for _ in range(8)]
    quoted: list[Any] = [
        {"title": "t", "queues": [{"name": "a"}], "steps": [{"at": 0, "do": lines}]}
    ]
    print(f"seed {seed}: {lines}")  # noqa: T201
    (example,) = read_examples(json.dumps(quoted), "dice")
    try:
        turns = list(Player.of(example).turns())
    except Fault as fault:
        place = fault.where
    else:
        assert len(turns) == 1
        return
    assert place.startswith("dice:")
