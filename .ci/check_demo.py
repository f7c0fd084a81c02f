"""Checks that the demo left one run one can trust: ``check_demo.py RUNS``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

LEAST_ACCURACY = 0.93


def complaints(summary: dict) -> list[str]:
    """What a summary lacks for a good demo."""
    found = []
    if not summary["verdict"]["valid"]:
        found.append(f"the verdict is not valid: {summary['verdict']['reasons']}")
    best = summary["accuracy"]["best"]
    if best is None or best < LEAST_ACCURACY:
        found.append(f"accuracy.best is {best}, expected at least {LEAST_ACCURACY}")
    return found


def main(runs: Path) -> int:
    summaries = list(runs.glob("*/summary.json"))
    if len(summaries) != 1:
        print(f"{runs}: expected one run with a summary.json, found {len(summaries)}")
        return 1
    summary = json.loads(summaries[0].read_text(encoding="utf-8"))
    found = complaints(summary)
    if found:
        print(f"{summaries[0]}:", *found, sep="\n  ")
        return 1
    pictures = list(summaries[0].parent.glob("*.png"))
    if not pictures:
        print(f"{summaries[0].parent}: no picture")
        return 1
    updates = summary["updates"]
    print(
        f"accuracy {summary['accuracy']['best']:.3f}, {updates['total']} updates,"
        f" {updates['per_second']:.0f} a second, verdict valid"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
