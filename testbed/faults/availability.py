"""Whether a worker is there at all, as a recording has it: a phone that charges, a house at night.

Who is switched off leaves, and who is switched on joins: a device that is off has lost what it
computed and its connection, so it begins anew with a pull, and no barrier waits for it meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.values.traces import Trace


@dataclass(frozen=True)
class Availability:
    """What says when one worker is there.

    Attributes:
        worker: its index.
        trace: 1 while it is there, 0 while it is not; emulated seconds.
        offset: where the recording is when the training starts, in seconds.
    """

    worker: int
    trace: Trace
    offset: float = 0.0

    @property
    def at_first(self) -> bool:
        """Whether it is there when the training starts."""
        return bool(self.trace.at(0.0, self.offset))

    @property
    def returns(self) -> bool:
        """Whether it comes again and again, without an end."""
        return self.trace.repeats and len(set(self.trace.values)) > 1

    @property
    def joins(self) -> int:
        """How often it comes during the training, where that has an end."""
        count, change = 0, self.after(0.0, there=self.at_first)
        while change is not None and not self.returns:
            count += change[1]
            change = self.after(change[0], there=change[1])
        return count

    def after(self, time: float, *, there: bool) -> tuple[float, bool] | None:
        """The first time after ``time`` that it comes or goes: when, and whether it comes.

        Args:
            time: emulated seconds since the training started.
            there: whether it is there at that time.
        """
        change = self.trace.after(time, float(there), self.offset)
        return None if change is None else (change[0], bool(change[1]))
