"""Gradients that the runs of a sweep reuse, kept while the sweep is active.

The gradients of an ended run are dropped when as many others have ended as run in parallel; each of
these has links to what it reused. Thus runs with the same training pass gradients on, and unused
gradients are removed. With n runs in parallel, the gradients of at most 2 n runs exist.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import HostError
from testbed.simulation.gradients import Reuse, count_reused, refused
from testbed.values.units import Size

FOLDER = ".gradients"
"""In the folder of runs."""


@dataclass
class ReusedGradients:
    """Storage for the gradients of a sweep's runs.

    Attributes:
        folder: contains a folder per run.
        most_bytes: maximum size of all folders together.
        side_by_side: maximum number of parallel runs.
    """

    folder: Path
    most_bytes: int
    side_by_side: int
    _ended: deque[str] = field(default_factory=deque)

    def of(self, run: str) -> Reuse:
        """Return where a new run finds gradients and writes its own."""
        return Reuse(self.folder, run, self.most_bytes // (2 * self.side_by_side))

    def refused(self, run: str) -> list[str]:
        """Return the problems of entries that a run has found and recomputed."""
        return refused(self.folder / run)

    def end(self, run: str) -> int:
        """Drop gradients of an earlier run as this one has ended; return how many it reused."""
        self._ended.append(run)
        if len(self._ended) > self.side_by_side:
            shutil.rmtree(self.folder / self._ended.popleft(), ignore_errors=True)
        return count_reused(self.folder / run)


@contextmanager
def reused_gradients(
    runs: Path, most_bytes: int, *, side_by_side: int
) -> Iterator[ReusedGradients | None]:
    """Create a folder for gradients in the folder of runs; remove that of a killed sweep.

    Raises:
        HostError: the disk has less free space than ``most_bytes``.
    """
    folder = runs / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    if not most_bytes:
        yield None
        return
    free = shutil.disk_usage(runs).free
    if free < most_bytes:
        raise HostError(
            f"{Size(most_bytes)} are needed for gradients in {runs}, which has {free / 1e9:.1f} "
            "GB of free space.",
            hint="Lower --reuse, or choose another folder with --runs.",
        )
    folder.mkdir()
    try:
        yield ReusedGradients(folder, most_bytes, side_by_side)
    finally:
        shutil.rmtree(folder)
