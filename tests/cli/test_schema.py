"""``testbed schema``."""

from pathlib import Path

import pytest

from testbed.cli import main

SCENARIOS = Path(__file__).parents[2] / "scenarios"


@pytest.mark.parametrize(
    ("words", "file"),
    [(["schema"], "schema.json"), (["schema", "study"], "study-schema.json")],
    ids=["scenario", "study"],
)
def test_the_command_prints_the_committed_schema(
    words: list[str], file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    committed = (SCENARIOS / file).read_text(encoding="utf-8")
    assert capsys.readouterr().out == committed, "run: make schema"
