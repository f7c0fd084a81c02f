"""docs/run-folder.md names every key of the JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from testbed.reports.frames import Run
from testbed.telemetry.folder import RunFolder, RunState
from testbed.telemetry.host import Circumstances, write_environment

PAGE = (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text()


def test_keys_of_run_and_environment(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "r", scenario="s", text="", classes=[], now=0.0)
    write_environment(folder, Circumstances([], 1.0, "", "", "", ""), package=tmp_path)
    environment = json.loads(folder.environment.read_text())
    names = [field.name for field in fields(RunState)]
    for name in (*names, *environment, *environment["host"], *environment["software"]):
        assert f"`{name}`" in PAGE, name


def test_keys_of_the_summary(folder: RunFolder) -> None:
    for path in paths(Run(folder.path).summary):
        whole, _, last = path.rpartition(".")
        assert f"`{path}`" in PAGE or (f"`{whole}`" in PAGE and f"`{last}`" in PAGE), path


def paths(summary: Mapping[str, Any]) -> Iterator[str]:
    for key, value in summary.items():
        if key in ("egress", "by_class", "by_worker", "algorithm", "think", "think_by_class"):
            continue  # documented as a whole
        if key == "metrics":
            continue  # likewise
        if isinstance(value, Mapping):
            yield from (f"{key}.{inner}" for inner in paths(value))
        else:
            yield key
