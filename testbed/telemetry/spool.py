"""The parameter server's record of applied updates: rows of fixed size, appended, never changed.

It is what a reader on the same host follows while the run goes on, and what is left of the last
seconds when everything else was killed. A row still being written is not seen.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

UPDATE = np.dtype(
    [
        ("time_seconds", "<f8"),
        ("wall_seconds", "<f8"),
        ("worker", "<i4"),
        ("sequence", "<i8"),
        ("version_pulled", "<i8"),
        ("version_applied", "<i8"),
        ("staleness", "<i8"),
        ("sigma_mean", "<f4"),
        ("sigma_max", "<i8"),
        ("step_scale", "<f4"),
        ("samples", "<i4"),
        ("entries", "<i8"),
        ("payload_up_bytes", "<i8"),
        ("payload_down_bytes", "<i8"),
        ("compute_seconds", "<f4"),
        ("late_seconds", "<f4"),
        ("think_seconds", "<f4"),
        ("transfer_seconds", "<f4"),
        ("blocked_seconds", "<f4"),
    ]
)
"""One applied update.

time_seconds: emulated seconds since the training started; wall_seconds: the same in real ones.
worker, sequence: whose push, and its number from 1 on.
version_pulled: version of the model that the update was computed on.
version_applied: updates applied before this one, the clock i; staleness is the difference.
sigma_mean, sigma_max, step_scale: see ``algorithms.base.Applied``.
samples: training samples that went into it; entries: values that were sent.
payload_up_bytes: of this push; payload_down_bytes: of the reply whose model it was computed on.
compute_seconds .. blocked_seconds: emulated seconds of the worker's cycle that ended with this
push: training (padded to the class's speed), what steps took beyond that speed, thinking, the call
that brought the model without the time in which the server held its reply back, and that time.
"""

Rows = NDArray[np.void]


class SpoolWriter:
    """Appends rows; the one process that applies updates has one.

    Args:
        path: the file; what it holds is kept.
        rows: how many rows are gathered in memory before they are written.
    """

    def __init__(self, path: Path, *, rows: int = 256) -> None:
        self._file = path.open("ab", buffering=0)
        self._rows = np.zeros(rows, UPDATE)
        self._filled = 0

    def append(self, row: tuple[Any, ...]) -> None:
        """Add one row, its values in the order of ``UPDATE``."""
        self._rows[self._filled] = row
        self._filled += 1
        if self._filled == len(self._rows):
            self.flush()

    def flush(self) -> None:
        """Hand all rows so far to the kernel."""
        data = memoryview(self._rows[: self._filled].tobytes())
        while data:
            data = data[self._file.write(data) :]
        self._filled = 0

    def close(self) -> None:
        """Flush and close; doing it twice is harmless."""
        if not self._file.closed:
            self.flush()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class SpoolReader:
    """Follows a spool that may still grow, or that does not exist yet.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Rows:
        """The complete rows that are new since the last call, shape (rows,), dtype ``UPDATE``."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            data = b""
        complete = len(data) - len(data) % UPDATE.itemsize
        self._offset += complete
        return np.frombuffer(data[:complete], UPDATE)
