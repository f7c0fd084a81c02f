"""Every guide is short, and its commands do what it says; commands of all documents parse.

A block of a guide with a file name, such as ``yaml mine.yaml``, is that file. Every block of shell
commands is executed from top to bottom, unless its first line says why not: ``not run: ...``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from testbed.cli import cli, main

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs/guides").glob("*.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TWO_SCREENS = 70
LONG = {"first-run", "home-connections", "own-algorithm", "own-optimizer", "paper-figure"}
"""Guides whose runs together take over ten seconds."""

_BLOCK = re.compile(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:sudo )?(testbed .+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of a document: its language, what follows it on the first line, and the text."""

    language: str
    mark: str
    text: str

    @property
    def commands(self) -> Iterator[list[str]]:
        """The arguments of each command of testbed."""
        if self.language == "sh":
            for command in _COMMAND.findall(self.text.replace("\\\n", "")):
                yield shlex.split(command.partition(" | ")[0], comments=True)[1:]


def blocks(document: Path) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(document.read_text(encoding="utf-8"))]


def parameters() -> Iterator[object]:
    for guide in GUIDES:
        marks = [pytest.mark.nightly] if guide.stem in LONG else [pytest.mark.slow]
        yield pytest.param(guide, id=guide.stem, marks=marks)


@pytest.mark.parametrize("guide", [*parameters()])
def test_the_commands_of_a_guide_do_what_it_says(
    guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for block in blocks(guide):
        if block.language != "sh" and block.mark:
            Path(block.mark).write_text(block.text, encoding="utf-8")
        if not block.mark.startswith("not run: "):
            for arguments in block.commands:
                assert main(arguments) == 0, arguments


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_has_two_screens_and_says_why_a_command_is_not_run(guide: Path) -> None:
    assert len(guide.read_text(encoding="utf-8").splitlines()) <= TWO_SCREENS
    found = [block for block in blocks(guide) if block.language == "sh"]
    assert found
    for block in found:
        assert re.fullmatch(r"(not run: .+)?", block.mark)
        assert block.mark or len([*block.commands]) == len(block.text.splitlines())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_a_document_have_these_arguments(document: Path) -> None:
    for block in blocks(document):
        for arguments in block.commands:
            parse(cli, [one for one in arguments if one != "&"])


def parse(command: click.Command, arguments: list[str]) -> None:
    """Parse a command's arguments without executing it.

    Raises:
        click.UsageError: there is no such command or option, or an argument is missing.
    """
    if not isinstance(command, click.Group):
        command.make_context(command.name, arguments)
        return
    found = command.get_command(click.Context(command), arguments[0])
    if found is None:
        raise click.UsageError(f"no command {arguments[0]}")
    parse(found, arguments[1:])


def test_a_wrong_command_is_found() -> None:
    parse(cli, ["net", "set", "RUN", "w1", "--up", "rate=1mbit"])
    for wrong in (["fly"], ["up", "a.yaml", "--fly"], ["net", "fly", "RUN"]):
        with pytest.raises(click.UsageError):
            parse(cli, wrong)
