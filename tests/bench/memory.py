"""Memory usage of 200 workers that train on digits, and how fast they start and stop.

    python tests/bench/memory.py [workers, default 200]

The quickstart with that many workers, as root or user. When every worker has pushed ten updates on
average, two things are read: how much less memory the host has than before, and the sum over the
run's processes of their proportional set sizes, in which shared pages are counted once. Other work
on the host disturbs the first. Prints a table, and JSON to benches/memory.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from watching import Progress, bytes_of, descendants, wait_until

from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import PROC, available_bytes, describe_host

QUICKSTART = Path(__file__).parents[2] / "scenarios/quickstart.yaml"
ROUNDS = 10
"""Updates per worker before the measurement."""

MORE_ROUNDS = 5
"""Updates per worker after it: the run stays active during the measurement."""


def main(workers: int) -> None:
    """Measure, print, write."""
    results: dict[str, Any] = {"host": dict(describe_host(PROC)), "workers": workers}
    with tempfile.TemporaryDirectory() as runs:
        results |= train(workers, Path(runs))
    for name, value in results.items():
        print(f"{name:28} {value if not isinstance(value, float) else round(value, 1)}")
    target = Path("benches/memory.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(results, indent=2) + "\n")


def train(workers: int, runs: Path) -> dict[str, Any]:
    """A whole run, and its memory in the middle of it."""
    folder = RunFolder(runs / "memory")
    updates = f"stop.updates={(ROUNDS + MORE_ROUNDS) * workers}"
    command = [sys.executable, "-m", "testbed", "up", str(QUICKSTART), "--workers", str(workers)]
    options = ["--set", updates, "--runs", str(runs), "--name", folder.name]
    before = available_bytes()
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL) as up:
        progress = Progress(folder.spool)
        wait_until(lambda: progress.look().updates >= ROUNDS * workers, up)
        taken = before - available_bytes()
        processes = list(descendants(up.pid))
        sizes = [bytes_of(pid, "Pss:") for pid in processes]
    summary = json.loads(folder.summary.read_text())
    return {
        "state": summary["state"],
        "updates": summary["updates"]["total"],
        "processes": len(processes),
        "less_available_bytes": taken,
        "pss_bytes": sum(sizes),
        "worker_private_bytes_median": summary["memory"]["worker_private_bytes_median"],
        "bring_up_seconds": summary["bring_up_seconds"],
        "tear_down_seconds": summary["tear_down_seconds"],
    }


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
