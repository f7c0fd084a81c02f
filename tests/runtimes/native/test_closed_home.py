"""A native node's view of a closed home that contains the modules it imports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytestmark = pytest.mark.namespaces


def test_a_closed_home_with_the_interpreters_modules_lists_nothing(
    live_in: Any, tmp_path: Path
) -> None:
    """The path leads to the needed folder; neither the home nor a folder on the path is listed."""
    with TemporaryDirectory(dir="/var/tmp") as place:
        home = Path(place) / "home"
        (home / "deep/lib").mkdir(parents=True)
        home.chmod(0o700)
        Path(place).chmod(0o755)
        shutil.copy(Path(__file__).parents[1] / "entries.py", home / "deep/lib/entries.py")
        paths = [home, home / "deep", home / "deep/lib"]
        roots = f"{Path(__file__).parents[3]}:{home / 'deep/lib'}"
        with live_in(tmp_path, environment={"PYTHONPATH": roots}) as run:
            asked = {"paths": ":".join(map(str, paths))}
            status, output = run.run("w0", "entries:try_files", arguments=asked)
    assert status == 0, output
    found = json.loads(output)
    assert [found[str(path)] for path in paths[:2]] == ["PermissionError"] * 2
    assert found[str(paths[2])].startswith("lists ['entries.py'")
