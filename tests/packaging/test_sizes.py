"""Files stay short enough to be read in one sitting."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 400
MOST_LINES_OF_AN_ALGORITHM = 150


def sources(folder: Path) -> list[Path]:
    """Python files written by hand."""
    return sorted(path for path in folder.rglob("*.py") if "_pb" not in path.parts)


def line_counts(paths: list[Path]) -> dict[str, int]:
    """Lines per file, by path in the repository."""
    return {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in paths
    }


@pytest.mark.parametrize(
    ("folder", "most"),
    [
        ("testbed", MOST_LINES),
        ("tests", MOST_LINES),
        ("testbed/algorithms", MOST_LINES_OF_AN_ALGORITHM),
    ],
)
def test_no_file_is_too_long(folder: str, most: int) -> None:
    counts = line_counts(sources(ROOT / folder))
    if folder == "testbed/algorithms":  # neither the contract nor the frame is an algorithm
        frame = "testbed/algorithms/frame/"
        counts = {path: lines for path, lines in counts.items() if not path.startswith(frame)}
        del counts["testbed/algorithms/base.py"]
    assert counts
    assert {path: lines for path, lines in counts.items() if lines > most} == {}
