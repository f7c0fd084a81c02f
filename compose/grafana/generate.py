"""Generates dashboards/*.json from pages/.

    python compose/grafana/generate.py [--check]

``--check`` writes nothing, and fails where a file is not that of the code.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

sys.path.insert(0, str(Path(__file__).parent))

from pages import PAGES
from panels import build

FOLDER = Path(__file__).parent / "dashboards"


def texts() -> dict[Path, str]:
    """What each file is to hold."""
    return {
        FOLDER / f"{page.uid}.json": json.dumps(build(page), cls=JSONEncoder, indent=2) + "\n"
        for page in PAGES
    }


def main() -> int:
    """Write the files, or compare them; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [path for path, text in texts().items() if not _holds(path, text)]
    if check and stale:
        names = ", ".join(path.name for path in stale)
        sys.stderr.write(f"{names}: not what pages/ makes. Try: make dashboard-files\n")
        return 1
    for path in stale:
        path.write_text(texts()[path])
    return 0


def _holds(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
