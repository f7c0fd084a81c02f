"""A switch with a thousand nodes: all of them answer, and nothing remains of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "tests/bench/thousand_nodes.py"


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("nodes", [300, pytest.param(1000, marks=pytest.mark.nightly)])
def test_many_nodes_answer_and_are_removed(tmp_path: Path, nodes: int) -> None:
    """At least more nodes than one byte of an address can distinguish."""
    done = subprocess.run(
        [sys.executable, BENCH, str(nodes)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads((tmp_path / "benches/thousand_nodes.json").read_text())
    assert (found["answered"], found["left"]) == (nodes, [])
