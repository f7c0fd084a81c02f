"""Whether a worker is present, by a recording: a phone that charges, a house at night.

A device that is switched off leaves, and one that is switched on joins: a device that is off has
lost its results and its connection, so it starts again with a pull, and no barrier waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.values.traces import Trace


@dataclass(frozen=True)
class Availability:
    """The recording that determines when one worker is present.

    Attributes:
        worker: its index.
        trace: 1 while it is present, 0 while it is absent; emulated seconds.
        offset: the position in the recording when training starts, in seconds.
    """

    worker: int
    trace: Trace
    offset: float = 0.0

    @property
    def at_first(self) -> bool:
        """Whether it is present when training starts."""
        return bool(self.trace.at(0.0, self.offset))

    @property
    def returns(self) -> bool:
        """Whether it joins again and again, without an end."""
        return self.trace.repeats and len(set(self.trace.values)) > 1

    @property
    def joins(self) -> int:
        """How often it joins during training, if the recording has an end."""
        count, change = 0, self.after(0.0, there=self.at_first)
        while change is not None and not self.returns:
            count += change[1]
            change = self.after(change[0], there=change[1])
        return count

    def after(self, time: float, *, there: bool) -> tuple[float, bool] | None:
        """Return the first change after ``time``: its time, and whether the worker joins.

        Args:
            time: emulated seconds since training started.
            there: whether it is present at that time.
        """
        change = self.trace.after(time, float(there), self.offset)
        return None if change is None else (change[0], bool(change[1]))
