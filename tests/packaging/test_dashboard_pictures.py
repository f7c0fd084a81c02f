"""Every dashboard can be drawn, with its variables replaced, and has its pictures."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "compose/grafana/dashboards").glob("*.json"))


@pytest.fixture
def dashboards(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs/site"))
    return importlib.import_module("dashboards")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_dashboard_can_be_drawn(dashboards: ModuleType, file: Path) -> None:
    page = json.loads(file.read_text(encoding="utf-8"))
    assert file.stem in dashboards.SHOWN
    program = (dashboards.PANELS / "panels.jsx").read_text(encoding="utf-8")
    (kinds,) = re.findall(r"^const KINDS = \{(.*)\};$", program, re.MULTILINE)
    drawn = {"row", *re.findall(r"([\w-]+)'?:", kinds)}
    assert {panel["type"] for panel in page["panels"]} <= drawn
    for panel in page["panels"]:
        for query in panel.get("targets", ()):
            assert "$" not in dashboards.expanded(query["expr"], "first")
    for shade in ("light", "dark"):
        assert (ROOT / f"docs/pictures/dashboard-{file.stem}-{shade}.png").is_file()


def test_a_series_has_its_name_and_milliseconds(dashboards: ModuleType) -> None:
    series = {"metric": {"class": "slow", "run": "a"}, "values": [[5, "1.5"], [10.5, "NaN"]]}
    expected = {"name": "slow probed", "times": [5000, 10500], "values": [1.5, None]}
    assert dashboards.curve("{{class}} probed {{absent}}", series) == expected
