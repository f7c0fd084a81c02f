"""The wheel is complete: installed into one folder, it runs a scenario in another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import testbed

run = testbed.simulate({
    "name": "wheel",
    "algorithm": {"custom": {"file": "mine.py", "class": "DcAsgd"}},
    "model": "digits-cnn",
    "dataset": "digits",
    "workers": {"count": 2, "classes": {"fast": {"speed": "20ms"}}},
    "stop": {"updates": 20},
}, name="wheel")
print(testbed.__file__, len(run.updates), run.verdict.valid)
"""


def execute(*command: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_folder(tmp_path: Path, wheel: Path) -> None:
    site, folder = tmp_path / "site", tmp_path / "folder"
    folder.mkdir()
    pip = ("-m", "pip", "--disable-pip-version-check")
    execute(*pip, "install", "--no-deps", "--target", site, wheel, folder=tmp_path)
    shutil.copy(ROOT / "scenarios" / "custom" / "dc_asgd.py", folder / "mine.py")
    own = {"PYTHONPATH": str(site), "XDG_STATE_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    out = execute("-c", PROGRAM, folder=folder, **own)
    assert out == f"{site / 'testbed' / '__init__.py'} 20 True\n"
    listed = execute("-P", "-m", "testbed", "ps", "--all", "--json", folder=folder, **own)
    assert '"run": "wheel"' in listed
    assert (site / "testbed" / "py.typed").exists()
