"""The engine's model of a worker: its device and links, and the state of its cycle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from testbed.algorithms.frame.effects import StandingOrders
from testbed.algorithms.frame.record import Timing
from testbed.errors import AlgorithmError
from testbed.simulation.event_queue import Callback
from testbed.simulation.keys import KeyedLinks
from testbed.simulation.model import Path
from testbed.simulation.worker import Course, Cycle, Paused, TimedOrders


@dataclass
class DeviceModel:
    """A worker's device, and its cycle from one push to the next; times in emulated seconds.

    Attributes:
        step_seconds: minimum duration of its next training step.
        draw_think: draws the time between computing and pushing.
        rng: generator for random events on its links.
        called_at: when it called the PS.
        arrived_at: when the call arrived at the PS.
        blocked: how long the PS held back the reply.
        decoding: how long it takes to decode its reply.
        transfers: duration of its calls since its last update, without ``blocks``.
        blocks: how long the PS held back the replies to these calls.
        think: the draw for its next push; None if used.
        computing: whether it has a reply and has not pushed.
        horizon: the time up to which it may be simulated.
        paused: where it waits at its horizon; None if it does not.
        pending_orders: orders not yet delivered to it.
        silent: whether it is frozen for good.
        frozen_at: since when it is frozen; None while it runs.
        frozen_seconds: how long it was frozen since its last reply arrived.
        stood: how long it was frozen between replies and pushes since its last update.
        deferred: callbacks to run once it is unfrozen.
        keys: known core keys at both ends of its links; None if no keys are sent.
        generation: number of times its process has ended; callbacks of earlier ones are discarded.
        slow: factor that multiplies its step times, from its next step on.
        configured: its paths up and down from the scenario.
    """

    step_seconds: float
    up: Path
    down: Path
    draw_think: Callable[[], float]
    rng: np.random.Generator
    called_at: float = 0.0
    arrived_at: float = 0.0
    blocked: float = 0.0
    decoding: float = 0.0
    transfers: float = 0.0
    blocks: float = 0.0
    think: float | None = None
    computing: bool = False
    horizon: float = inf
    paused: Paused | None = None
    pending_orders: list[TimedOrders] = field(default_factory=list)
    silent: bool = False
    frozen_at: float | None = None
    frozen_seconds: float = 0.0
    stood: float = 0.0
    deferred: list[Callback] = field(default_factory=list)
    keys: KeyedLinks | None = None
    generation: int = 0
    slow: float = 1.0
    configured: tuple[Path, Path] = field(init=False)

    def __post_init__(self) -> None:
        self.configured = self.up, self.down

    def thaw(self, now: float) -> list[Callback]:
        """Unfreeze the device; return the callbacks to run at once."""
        assert self.frozen_at is not None, "only a frozen device can be unfrozen"
        self.frozen_seconds += now - self.frozen_at
        self.frozen_at = None
        held, self.deferred = self.deferred, []
        return held

    def end(self) -> None:
        """End its process; the next process starts from scratch."""
        self.generation += 1
        self.silent = False
        self.frozen_at, self.frozen_seconds, self.deferred = None, 0.0, []
        self.think, self.computing, self.paused, self.pending_orders = None, False, None, []
        if self.keys is not None:
            self.keys.worker.drop()
        self.slow = 1.0
        self.up, self.down = self.configured
        self.step_seconds = self.stood = 0.0  # the draw may have been used in a discarded cycle

    def called(self, now: float) -> None:
        """End its call to the PS."""
        self.transfers += now - self.called_at - self.blocked
        self.blocks += self.blocked

    def timing(self, cycle: Cycle) -> Timing:
        """Return the times of a cycle that ended with a push; reset them after an update."""
        timing = Timing(
            compute_seconds=cycle.compute_seconds + self.stood,
            think_seconds=cycle.think_seconds,
            transfer_seconds=self.transfers,
            blocked_seconds=self.blocks,
        )
        if cycle.update.steps:
            self.transfers = self.blocks = self.stood = 0.0
        return timing

    def order(self, worker: int, standing: StandingOrders, arrival: float) -> None:
        """Queue orders that reach the worker at ``arrival``.

        Raises:
            AlgorithmError: the worker may already have been computed beyond that time.
        """
        if self.computing and arrival < self.horizon:
            raise AlgorithmError(
                f"orders reach w{worker} at {arrival:.6f} s, before the tick at "
                f"{self.horizon:.6f} s that the server half announced.",
                hint="A server half that sends orders must announce its ticks in `next_tick`.",
            )
        self.pending_orders.append((arrival, standing))

    def course(self, horizon: float) -> Course:
        """Return the worker's course up to a new horizon, with the orders that are pending."""
        self.horizon, orders, self.pending_orders = horizon, tuple(self.pending_orders), []
        return Course(horizon, orders, self.slow)


def buckets_of(devices: Sequence[DeviceModel]) -> dict[str, object]:
    """Return the token buckets of all links, by name: both ends of a transfer refer to one."""
    return {
        f"w{number}.{way}": path.bucket
        for number, device in enumerate(devices)
        for way, path in (("up", device.up), ("down", device.down))
    }
