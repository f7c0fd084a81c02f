"""Gradients that the runs of a sweep reuse, kept while the sweep goes on.

Those of a run that has ended are dropped when as many others have ended as go on side by side; each
of these has links to what it reused. So runs that train alike hand their gradients on, and what
none has reused makes room. With n side by side, the gradients of at most 2 n runs are there.
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
    """Where a sweep's runs write gradients.

    Attributes:
        folder: has a folder of each run.
        most_bytes: what all may take together.
        side_by_side: how many runs go on at once, at most.
    """

    folder: Path
    most_bytes: int
    side_by_side: int
    _ended: deque[str] = field(default_factory=deque)

    def of(self, run: str) -> Reuse:
        """Where a run that begins finds gradients and writes its own."""
        return Reuse(self.folder, run, self.most_bytes // (2 * self.side_by_side))

    def refused(self, run: str) -> list[str]:
        """What was wrong with entries that a run has found, and computed again."""
        return refused(self.folder / run)

    def end(self, run: str) -> int:
        """Drop those of a run before, as this one has ended; returns how many it reused."""
        self._ended.append(run)
        if len(self._ended) > self.side_by_side:
            shutil.rmtree(self.folder / self._ended.popleft(), ignore_errors=True)
        return count_reused(self.folder / run)


@contextmanager
def reused_gradients(
    runs: Path, most_bytes: int, *, side_by_side: int
) -> Iterator[ReusedGradients | None]:
    """A folder for gradients in that of the runs; what a killed sweep has left there is removed.

    Raises:
        HostError: the disk has less room than that.
    """
    folder = runs / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    if not most_bytes:
        yield None
        return
    free = shutil.disk_usage(runs).free
    if free < most_bytes:
        raise HostError(
            f"{Size(most_bytes)} of gradients are to be kept in {runs}, where {free / 1e9:.1f} GB "
            "are free.",
            hint="Give --reuse less, or another place with --runs.",
        )
    folder.mkdir()
    try:
        yield ReusedGradients(folder, most_bytes, side_by_side)
    finally:
        shutil.rmtree(folder)
