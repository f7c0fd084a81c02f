"""The table of the papers' figures: its contents, and how verdicts are counted."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import yaml

from testbed.studies import is_study
from testbed.studies.verdicts import Judged, Verdict

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    row
    for paper in yaml.safe_load((ROOT / "docs/papers.yaml").read_text(encoding="utf-8"))["papers"]
    for row in paper["rows"]
]
PAPERS = runpy.run_path(str(ROOT / "scenarios/papers.py"))


def judged(verdict: Verdict, seeds: int, basis: str = "") -> Judged:
    return Judged("one", "", "", verdict, seeds, "", basis)


@pytest.mark.parametrize("folder", ["adacomp", "slim_dp", "adsp", "adsp_full", "scadles"])
def test_every_study_of_a_paper_is_in_the_table(folder: str) -> None:
    files = (ROOT / "scenarios" / folder).glob("*.yaml")
    studies = {f"{folder}/{file.name}" for file in files if is_study(file)}
    page = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
    assert studies
    assert studies - {row.get("study") for row in ROWS} == set()
    assert [name for name in studies if f"](../scenarios/{name})" not in page] == []


def test_verdicts_are_counted_by_kind() -> None:
    several = [judged("not resolved", 1), judged("reproduced", 3), judged("not resolved", 3)]
    assert PAPERS["counted"](several) == "1 reproduced, 2 not resolved"
    assert PAPERS["seeds"](several) == "1 or 3"
    assert PAPERS["seeds"]([judged("not run", 0)]) == ""


def test_a_drawing_has_no_study() -> None:
    drawing = list(PAPERS["cells"]({"figure": "figure 2", "shows": "a drawing", "size": "drawing"}))
    assert drawing == ["figure 2", "a drawing", "none", "drawing", "none", "", "none", "", "", ""]


def test_arithmetic_is_counted_separately() -> None:
    row = {"figure": "1", "shows": "", "size": "full", "evidence": "training"}
    cells = list(PAPERS["cells"]({**row, "study": "adacomp/encodings.yaml"}))
    assert cells[5:] == ["1", "training", "2 not resolved", "", "2 reproduced"]
