"""What the engine knows of a worker: its device and links, and where it is in its cycle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from testbed.errors import AlgorithmError
from testbed.frame.effects import StandingOrders
from testbed.frame.record import Timing
from testbed.simulation.agenda import Happening
from testbed.simulation.keys import KeyedLinks
from testbed.simulation.model import Path
from testbed.simulation.worker import Coming, Cycle, Paused


@dataclass
class DeviceModel:
    """A worker's device, and its cycle from its last push to its next; in emulated seconds.

    Attributes:
        step_seconds: what its next training step takes at least.
        draw_think: draws what passes between computing and pushing.
        rng: draws what happens on its links.
        began: when it called the PS.
        asked: when the call had arrived there.
        blocked: how long the PS held the reply back.
        decoding: how long it takes to use its reply.
        transfers: how long its calls since its last update took beside that.
        blocks: how long the PS held the replies to these calls back.
        think: the draw for its next push; None if that was used.
        computing: whether it has a reply and has not pushed.
        horizon: how far it may be computed meanwhile.
        paused: where it waits for its horizon to move on.
        coming: orders that it has not been told of.
        silent: whether it stands still for good.
        frozen_at: since when it stands still for a time; None while it goes on.
        stood: how long it stood still since its last reply arrived.
        held: what it will do once it goes on.
        keys: what both ends of its links know of core keys; None where none are sent.
        life: how often it has ended; what it did in an earlier life comes to nothing.
        slow: how many times as long its steps take, from its next one on.
        planned: its paths up and down as the scenario has them.
    """

    step_seconds: float
    up: Path
    down: Path
    draw_think: Callable[[], float]
    rng: np.random.Generator
    began: float = 0.0
    asked: float = 0.0
    blocked: float = 0.0
    decoding: float = 0.0
    transfers: float = 0.0
    blocks: float = 0.0
    think: float | None = None
    computing: bool = False
    horizon: float = inf
    paused: Paused | None = None
    coming: list[Coming] = field(default_factory=list)
    silent: bool = False
    frozen_at: float | None = None
    stood: float = 0.0
    held: list[Happening] = field(default_factory=list)
    keys: KeyedLinks | None = None
    life: int = 0
    slow: float = 1.0
    planned: tuple[Path, Path] = field(init=False)

    def __post_init__(self) -> None:
        self.planned = self.up, self.down

    def freeze(self, now: float) -> None:
        """It stands still, with all that it was doing."""
        self.frozen_at = now

    def thaw(self, now: float) -> list[Happening]:
        """It goes on; returns what it does at once."""
        assert self.frozen_at is not None, "it stands still"
        self.stood += now - self.frozen_at
        self.frozen_at = None
        held, self.held = self.held, []
        return held

    def end(self) -> None:
        """Its process has ended; the next one begins from the beginning."""
        self.life += 1
        self.frozen_at, self.stood, self.held = None, 0.0, []
        self.think, self.computing, self.paused, self.coming = None, False, None, []
        if self.keys is not None:
            self.keys.worker.drop()
        self.slow = 1.0
        self.step_seconds = 0.0  # the draw may have gone into a cycle that came to nothing

    def begin(self, now: float) -> None:
        """Its process has begun, and calls the PS."""
        self.began = self.asked = now
        self.transfers = self.blocks = 0.0

    def called(self, now: float) -> None:
        """Its call to the PS is over."""
        self.transfers += now - self.began - self.blocked
        self.blocks += self.blocked

    def timing(self, cycle: Cycle) -> Timing:
        """The times of a cycle that ended with a push; the next one's begin after an update."""
        timing = Timing(
            compute_seconds=cycle.compute_seconds,
            think_seconds=cycle.think_seconds,
            transfer_seconds=self.transfers,
            blocked_seconds=self.blocks,
        )
        if cycle.update.steps:
            self.transfers = self.blocks = 0.0
        return timing

    def order(self, worker: int, standing: StandingOrders, arrival: float) -> None:
        """Orders reach the worker at ``arrival``.

        Raises:
            AlgorithmError: it may have been computed beyond that already.
        """
        if self.computing and arrival < self.horizon:
            raise AlgorithmError(
                f"orders reach w{worker} at {arrival:.6f} s, before the tick at "
                f"{self.horizon:.6f} s that the server half had named.",
                hint="A half that sends orders names its ticks ahead, in `next_tick`.",
            )
        self.coming.append((arrival, standing))

    def take_coming(self) -> list[Coming]:
        """The orders to tell the worker of now."""
        taken, self.coming = self.coming, []
        return taken


def buckets_of(devices: Sequence[DeviceModel]) -> dict[str, object]:
    """The token buckets of all links, by name: both ends of a transfer refer to one."""
    return {
        f"w{number}.{way}": path.bucket
        for number, device in enumerate(devices)
        for way, path in (("up", device.up), ("down", device.down))
    }
