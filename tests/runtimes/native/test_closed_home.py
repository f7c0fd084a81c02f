"""What a native node sees of a home that is closed to others and holds what it imports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytestmark = pytest.mark.namespaces


def test_a_closed_home_that_holds_the_interpreters_modules_lists_nothing(
    live_in: Any, tmp_path: Path
) -> None:
    """Its way leads on to what is needed; neither it nor a folder on the way says what is there."""
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
