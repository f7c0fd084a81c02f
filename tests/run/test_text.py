"""A run that is resumed reads the copy of its text."""

from __future__ import annotations

from pathlib import Path

from testbed.datasets import load
from testbed.run.data import prepare_own_data
from testbed.scenario import load_text
from testbed.telemetry.folder import RunFolder

TEXT = """
name: copied
runtime: simulated
algorithm: asgd
model: gpt
dataset: {text: {file: custom/play.txt, length: 4}}
workers: {count: 2, batch_size: 2, classes: {all: {speed: 10ms}}}
stop: {updates: 20}
"""


def test_the_copy_is_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.custom.mkdir()
    (folder.custom / "play.txt").write_text("to be, or not to be\n" * 3, encoding="utf-8")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    data = load(prepare_own_data(load_text(TEXT), folder, environment))
    assert data.source["tokens"] == "\n ,benort"
