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
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.host.process import parent_of
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import PROC, available_bytes, describe_host
from testbed.telemetry.spool import SpoolReader

QUICKSTART = Path(__file__).parents[2] / "scenarios/quickstart.yaml"
ROUNDS = 10
"""Updates per worker before the measurement."""

MORE_ROUNDS = 5
"""Updates per worker after it: the run stays active during the measurement."""

PATIENCE_SECONDS = 300.0


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
        wait_for_updates(ROUNDS * workers, folder, up)
        taken = before - available_bytes()
        processes = list(descendants(up.pid))
        sizes = [pss_bytes(pid) for pid in processes]
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


def wait_for_updates(count: int, folder: RunFolder, up: subprocess.Popen[bytes]) -> None:
    """Until the parameter server has recorded this many updates.

    Raises:
        RuntimeError: the run has ended, or takes too long.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(SpoolReader(folder.spool).read()) < count:
        if up.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"there are not {count} updates; up's status: {up.poll()}")
        time.sleep(0.05)  # the parameter server is observed through its file


def descendants(ancestor: int) -> Iterator[int]:
    """A process and its descendants: for a run, the controller, its agent and every node."""
    parents: dict[int, int] = {}
    for path in PROC.iterdir():
        if path.name.isdecimal():
            with suppress(ProcessLookupError):  # it has just ended
                parents[int(path.name)] = parent_of(int(path.name))
    pending = [ancestor]
    while pending:
        pid = pending.pop()
        yield pid
        pending += [child for child, parent in parents.items() if parent == pid]


def pss_bytes(pid: int) -> int:
    """A process's memory with its share of shared pages; 0 if it has just ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
