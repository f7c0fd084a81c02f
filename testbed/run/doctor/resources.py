"""Checks of what a run uses up: memory, CPUs, disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from testbed.run.doctor.findings import Case, Finding
from testbed.telemetry.host import available_bytes

WORKERS_PER_CPU = 200
"""A worker that thinks and waits most of the time takes this much of a CPU to keep connected."""

LEAST_DISK_BYTES = 100_000_000
FULL_DISK_BYTES = 10_000_000


def check_memory(case: Case, *, available: int | None = None) -> Finding:
    """What is available now, against what the plan's nodes are estimated to take."""
    found = available_bytes() if available is None else available
    wanted = case.memory_bytes
    text = f"{_mb(found)} available, about {_mb(wanted)} for {case.workers:,} workers"
    if found < wanted:
        return Finding("memory", "missing", text, "Take fewer workers: --workers N")
    more = (found - wanted) // case.worker_bytes
    return Finding("memory", "ok", f"{text}; room for about {more:,} more")


def check_cpus(case: Case, *, cpus: int | None = None) -> Finding:
    """How many there are, and whether the scenario promises its nodes more."""
    found = len(os.sched_getaffinity(0)) if cpus is None else cpus
    promised = 0.0 if case.budget is None else case.budget.cpu_limits
    if promised > found:
        text = f"{found}, but the limits of the nodes add up to {promised:g}"
        mend = "If they compute at the same time, the verdict will be that they were late."
        return Finding("CPUs", "warning", text, mend)
    if case.workers > WORKERS_PER_CPU * found:
        text = f"{found} for {case.workers:,} workers"
        return Finding("CPUs", "warning", text, "Take fewer workers, or a smaller time_scale.")
    return Finding("CPUs", "ok", f"{found} for {case.workers:,} workers")


def check_disk(case: Case) -> Finding:
    """Whether the folder of runs can be written to, and what room there is."""
    place = _existing(case.runs)
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        found = f"{place} cannot be written to: {error.strerror}"
        return Finding("disk", "missing", found, "Choose another place with --runs.")
    free = shutil.disk_usage(place).free
    text = f"{_mb(free)} free at {place}"
    if free < LEAST_DISK_BYTES:
        mend = "Make room, or choose another place with --runs."
        return Finding("disk", "missing" if free < FULL_DISK_BYTES else "warning", text, mend)
    return Finding("disk", "ok", text)


def _existing(path: Path) -> Path:
    """The folder, or the nearest above it that there is."""
    absolute = path.absolute()
    return next(place for place in (absolute, *absolute.parents) if place.is_dir())


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"
