"""A run of ``testbed up`` seen from outside: how far it is, and what its processes take."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from testbed.telemetry.spool import SpoolReader

PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.02
TICKS = os.sysconf("SC_CLK_TCK")

Found = TypeVar("Found")


class Progress:
    """What the PS has written down, read once: the run under measurement has the same CPUs.

    Attributes:
        updates: that were applied.
        seconds: since the start of the training, at the last of them.
    """

    def __init__(self, spool: Path) -> None:
        self.updates = 0
        self.seconds = 0.0
        self._reader = SpoolReader(spool)

    def look(self) -> Progress:
        """Itself, with the updates that are new."""
        while len(rows := self._reader.read()):
            self.add(rows)
        return self

    def add(self, rows: Any) -> None:
        """Count new rows of the record."""
        self.updates += len(rows)
        self.seconds = float(rows["wall_seconds"][-1])


def wait_until(
    look: Callable[[], Found], up: subprocess.Popen[bytes], *, every: float = POLL_SECONDS
) -> Found:
    """Poll until the result is true; return it.

    Raises:
        RuntimeError: the run has ended before, or it takes too long.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        if up.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the run does not train; its status is {up.poll()}")
        time.sleep(every)
    return found


def pids_of(run: Path) -> dict[str, int]:
    """The nodes of a run, which are no descendants of `testbed up` in every runtime."""
    events = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return {event["node"]: event["pid"] for event in events if event["event"] == "launched"}


def children(parent: int) -> Iterator[int]:
    """The children of a process."""
    for thread in Path(f"/proc/{parent}/task").glob("*"):
        yield from map(int, read(parent, f"task/{thread.name}/children").split())


def descendants(root: int) -> Iterator[int]:
    """A process and all below it: for a native run, the controller, its agent and every node."""
    yield root
    for child in children(root):
        yield from descendants(child)


def spent(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and of its children that it has waited for; 0 once it has ended."""
    fields = read(pid, "stat").rpartition(")")[2].split()
    own, waited_for = fields[11:13], fields[13:15]
    return sum(map(int, own)) / TICKS, sum(map(int, waited_for)) / TICKS


def bytes_of(pid: int, kind: str) -> int:
    """Memory of a process: ``Pss:``, what it shares divided by those who share it, ``Private_``."""
    lines = read(pid, "smaps_rollup").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))


def read(pid: int, name: str) -> str:
    """What the kernel says of a process; empty if it has just ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
