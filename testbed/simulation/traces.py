"""Lets the simulated links of workers follow their traces, at exact times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from testbed.scenario.traces import Following
from testbed.simulation.model import burst_bytes, delayed
from testbed.simulation.simulated_run import SimulatedRun
from testbed.values.units import Rate


@dataclass
class Traces:
    """The links that follow traces; their positions are only in the event queue."""

    STATE: ClassVar = ()
    engine: SimulatedRun
    followings: Sequence[Following] = ()

    def begin(self) -> None:
        """Set every link to its trace's value at the start of training."""
        for number, one in enumerate(self.followings):
            self._step(number, one.trace.at(0.0, one.offset), 0.0)

    def _step(self, number: int, value: float, now: float) -> None:
        one = self.followings[number]
        if one.what == "rate":
            self._set_rate(one, Rate(value))
        else:
            device = self.engine.devices[one.worker]
            delays = (value, None) if one.direction == "up" else (None, value)
            device.configured = device.up, device.down = delayed(*device.configured, *delays)
        following = one.trace.after(now, value, one.offset)
        if following is not None:
            at, then = following
            self.engine.events.at(at, partial(self._step, number, then))

    def _set_rate(self, one: Following, rate: Rate) -> None:
        engine = self.engine
        device, up = engine.devices[one.worker], one.direction == "up"
        bucket = device.up.bucket if up else device.down.bucket
        bucket.configured = rate.bytes_per_second, burst_bytes(rate, engine.recorder.time_scale)
        bucket.change(*bucket.configured, link=engine.uplink if up else engine.downlink)
