"""The notebook in docs runs from its first cell to its last, and contains its results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from testbed.telemetry.folder import RunFolder
from testbed.telemetry.registry import Registry

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "first-steps.ipynb"


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(cell: Any) -> list[str]:
    """The kinds of a cell's outputs: text, a table, a figure."""
    kinds = ("image/png", "text/html", "text/plain")
    return [
        next(kind for kind in kinds if kind in output["data"]) if "data" in output else output.name
        for output in cell.outputs
    ]


def test_the_notebook_was_executed_from_top_to_bottom() -> None:
    cells = code(nbformat.read(NOTEBOOK, as_version=4))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises the error of a failing cell. The exact numbers depend on the machine."""
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    text = "name: another\n"
    another = RunFolder.create(
        tmp_path / "elsewhere", "another", scenario="another", text=text, classes=[], now=0.0
    )
    Registry.of_user(os.environ, Path.home()).add(another.path)
    kept = nbformat.read(NOTEBOOK, as_version=4)
    fresh = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(fresh, timeout=120, resources=where).execute()
    assert [outputs(cell) for cell in code(fresh)] == [outputs(cell) for cell in code(kept)]
    assert "valid=True" in code(fresh)[2].outputs[0]["data"]["text/plain"]
    reopened = [cell.outputs for cell in code(fresh)[-2:]]  # and the error
    assert reopened == [cell.outputs for cell in code(kept)[-2:]]
    assert len(list((tmp_path / "runs").glob("*/summary.json"))) == 4
