"""Two hundred workers train in the memory of a laptop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "tests/bench/memory.py"
MOST_BYTES = 8e9


@pytest.mark.root
@pytest.mark.nightly
def test_two_hundred_workers_train_in_eight_gigabytes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, BENCH, "200"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads((tmp_path / "benches/memory.json").read_text())
    assert (found["state"], found["updates"]) == ("finished", 3000)
    assert found["processes"] > 200
    assert found["pss_bytes"] <= MOST_BYTES
    assert found["less_available_bytes"] <= MOST_BYTES
