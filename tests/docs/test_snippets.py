"""Every Python and shell block of the README and the docs runs, in order, page by page, in a directory of its own.

- `python` blocks of a page share their names. A `text` block right behind one is what it prints.
- `bash` blocks run with `set -e`. `console` blocks hold `$ ` lines and what they print, both streams together.
- Exported variables and the working directory carry over from block to block, as in a terminal.
- A command that is meant to fail ends with `# exit N`; a process that is meant to be killed, with `# exit 137`.
- `…` stands for anything in a line, a line with nothing else for any number of lines. Runs of blanks are one blank.
- Blocks of `make` commands are not run here; `test_pages.py` looks that their targets exist.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^(\s*)```(\w*)\s*$")
EXIT = re.compile(r"\s+# exit (\d+)\s*$")
KILLED = re.compile(r"^.*\bKilled\b.*$", re.MULTILINE)
MARK = "=#= exit"


@dataclass(frozen=True)
class Block:
    language: str
    line: int
    text: str
    follows: bool
    """Nothing but empty lines between it and the block before it."""


@dataclass(frozen=True)
class Command:
    text: str
    code: int = 0
    shown: list[str] = field(default_factory=list)


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    opened: tuple[int, str, str] | None = None
    body: list[str] = []
    follows = False
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                opened, body = (number, fence[2], fence[1]), []
            elif line.strip():
                follows = False
        elif fence and not fence[2]:
            yield Block(opened[1], opened[0], "\n".join(body) + "\n", follows)
            opened, follows = None, True
        else:
            body.append(line.removeprefix(opened[2]))
    assert opened is None, f"the block of line {opened} is never closed"


def commands(block: Block) -> list[Command]:
    """The `$ ` lines of a console block, each with what it prints."""
    found: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(_command(line[2:]))
        else:
            assert found, f"line {block.line}: a console block starts with a `$ ` line"
            found[-1].shown.append(line)
    return found


def statements(block: Block) -> list[Command]:
    """A bash block as commands: lines up to the next one that says how it exits."""
    found: list[Command] = []
    plain: list[str] = []
    for line in block.text.splitlines():
        if EXIT.search(line):
            found += [Command("\n".join(plain)), _command(line)] if plain else [_command(line)]
            plain = []
        else:
            plain.append(line)
    return [*found, Command("\n".join(plain))] if plain else found


def _command(line: str) -> Command:
    expected = EXIT.search(line)
    return Command(EXIT.sub("", line), int(expected[1]) if expected else 0)


def is_make(block: Block) -> bool:
    lines = [line for line in block.text.splitlines() if line.strip() and not line.startswith("#")]
    return all(line.removeprefix("$ ").startswith("make ") for line in lines)


def pattern(shown: Sequence[str]) -> str:
    """What the shown lines allow."""
    lines = []
    for line in shown:
        plain = " ".join(line.split())
        if plain == "…":
            lines.append(r"(?:.*\n)*?")
        elif plain:
            lines.append(".*".join(re.escape(part) for part in plain.split("…")) + "\n")
    return "".join(lines)


def assert_printed(shown: Sequence[str], printed: str, where: str) -> None:
    lines = [" ".join(line.split()) for line in KILLED.sub("Killed", printed).splitlines()]
    plain = "".join(f"{line}\n" for line in lines if line)
    assert re.fullmatch(pattern(shown), plain), f"{where} shows\n" + "\n".join(shown) + f"\nbut this came:\n{printed}"


class Terminal:
    """A shell whose exported variables and directory live from block to block."""

    def __init__(self, directory: Path) -> None:
        self._state = directory / "state"
        self._state.mkdir()
        self.directory = directory / "work"
        self.directory.mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FENCELINE_", "FORCE_", "COV_"))}
        self._environment = {
            **kept,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TERM": "dumb",
            "LC_ALL": "C.UTF-8",
        }

    def run(self, found: Sequence[Command], where: str) -> None:
        exported, place = (shlex.quote(str(self._state / name)) for name in ("exported", "place"))
        script = [f"if [ -e {exported} ]; then . {exported}; fi"]
        for command in found:
            if command.code:
                script.append(f"{command.text}\ncode=$?; echo; echo '{MARK}' $code")
            else:
                script.append(f"set -e\n{command.text}\nset +e; echo; echo '{MARK}' 0")
        script.append(f"export -p > {exported}; pwd > {place}")
        done = subprocess.run(
            ["bash", "-c", "\n".join(script)],
            cwd=self.directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
            text=True,
        )
        self._compare(found, done.stdout, where)
        assert done.returncode == 0, f"{where}: bash ended with {done.returncode}\n{done.stdout}"
        self.directory = Path((self._state / "place").read_text().removesuffix("\n"))

    def _compare(self, found: Sequence[Command], output: str, where: str) -> None:
        rest = output
        for command in found:
            printed, mark, rest = rest.partition(f"\n{MARK} ")
            code, _, rest = rest.partition("\n")
            assert mark, f"{where}: {command.text!r} failed:\n{printed}"
            assert int(code) == command.code, f"{where}: {command.text!r} ended with {code}:\n{printed}"
            if command.shown:
                assert_printed(command.shown, printed, where)


def run_python(block: Block, names: dict[str, Any], expected: Block | None, where: str) -> None:
    code = compile("\n" * block.line + block.text, where, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, names)
    if expected:
        assert_printed(expected.text.splitlines(), printed.getvalue(), where)


def _page(page: Path) -> ParameterSet:
    """Each command is a process of its own: pages with many of them are slow, and so are those that start Spark."""
    shell = [block.text for block in blocks(page.read_text()) if block.language in ("bash", "console")]
    starts = len(re.findall(r"\bfenceline [a-z]+", "".join(shell)))
    slow = starts > 8 or re.search(r"SparkWorkspace|\.spark\(", "".join(shell))
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("page", [_page(page) for page in PAGES])
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(tmp_path)
    names: dict[str, Any] = {"__name__": "docs"}
    found = list(blocks(page.read_text()))
    for number, block in enumerate(found):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        after = found[number + 1] if number + 1 < len(found) else None
        if block.language == "python":
            printed = after if after and after.follows and after.language == "text" else None
            monkeypatch.chdir(terminal.directory)
            run_python(block, names, printed, where)
        elif block.language in ("bash", "console") and not is_make(block):
            terminal.run(statements(block) if block.language == "bash" else commands(block), where)


# --- the runner itself: a runner that accepts everything would prove nothing ------------------------------------


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def run_block(terminal: Terminal, language: str, text: str) -> None:
    (block,) = blocks(f"```{language}\n{text}\n```\n")
    terminal.run(statements(block) if language == "bash" else commands(block), "here")


def test_state_carries_over(terminal: Terminal) -> None:
    run_block(terminal, "bash", "export PLACE=here\nmkdir inside\ncd inside")
    run_block(terminal, "console", '$ echo "$PLACE $(basename "$PWD")"\nhere inside')


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("bash", "false\ntrue"),
        ("bash", "true  # exit 4"),
        ("bash", "(exit 3)  # exit 4"),
        ("console", "$ false"),
        ("console", "$ echo one\ntwo"),
        ("console", "$ echo one; echo two\none"),
        ("console", "$ echo one\n…\ntwo"),
    ],
)
def test_what_does_not_hold_is_noticed(terminal: Terminal, language: str, text: str) -> None:
    with pytest.raises(AssertionError):
        run_block(terminal, language, text)


def test_loose_comparison(terminal: Terminal) -> None:
    run_block(terminal, "bash", "true\n(exit 4)  # exit 4\ntrue")
    run_block(terminal, "console", "$ echo 'commit   8f3a  by me'\ncommit … by me")
    run_block(terminal, "console", "$ printf 'a\\nb\\nc\\n'; (exit 7)  # exit 7\na\n…\nc")
    run_block(terminal, "console", "$ bash -c 'kill -9 $$'  # exit 137\nKilled")


def test_python_output_is_compared() -> None:
    first, second = blocks("```python\nprint('one')\n```\n\n```text\none\n```\n")
    run_python(first, {}, second, "here")
    wrong = Block("text", 1, "two\n", follows=True)
    with pytest.raises(AssertionError):
        run_python(first, {}, wrong, "here")
