"""``testbed schema``."""

from pathlib import Path

import pytest

from testbed.cli import main

SCHEMA = Path(__file__).parents[2] / "scenarios" / "schema.json"


def test_the_command_prints_the_committed_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    committed = SCHEMA.read_text(encoding="utf-8")
    assert capsys.readouterr().out == committed, "run: make schema"
