"""A small training run to check an algorithm: noise as gradients, one second per step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any

import numpy as np

from testbed.algorithms.base import (
    AlgorithmConfig,
    Measured,
    ServerHalf,
    Stream,
    Update,
    WorkerHalf,
)
from testbed.algorithms.frame.actions import Arrived, Computed, Push, Step
from testbed.algorithms.frame.breach import breach
from testbed.algorithms.frame.effects import Effects
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.stop import StopRule
from testbed.algorithms.frame.worker import Shard, Worker
from testbed.algorithms.parts.state import pack_half, restore_half
from testbed.errors import RejectedError
from testbed.payloads import Vector
from testbed.payloads.layout import Layout
from testbed.values.state import PlainState

LAYOUT = Layout(("weight", "bias"), ((30, 4), (4,)))
WORKERS = 3
UPDATES = 60
STREAM = Stream(batch_size=10, own=10)
LEAST_UPDATES = 2 * WORKERS
MOST_STEPS = 10_000
"""The limit for all workers together: a run that has LEAST_UPDATES by then is long enough. Also the
limit of local steps before a push."""


@dataclass
class Trial:
    """Workers that take turns, in the order of their replies.

    Attributes:
        server: the frame's loop around the algorithm's server half.
        workers: the frame's loops around its worker halves.
        now: emulated seconds.
        pushes: number of pushes, including messages.
    """

    server: Server
    workers: list[Worker]
    config: AlgorithmConfig
    now: float = 0.0
    pushes: int = 0
    _arrived: dict[int, Arrived] = field(default_factory=dict)
    _asked: dict[int, Push] = field(default_factory=dict)  # every worker's last push
    _steps: int = 0

    @classmethod
    def of(cls, config: AlgorithmConfig, *, updates: int = UPDATES) -> Trial:
        """Create a trial that ends after this many updates."""
        server = Server(server_half(config), StopRule(updates=updates))
        workers = [
            Worker(
                worker_half(config, index),
                STREAM,
                Shard(np.arange(10), np.random.default_rng(index)),
                think=lambda: 0.0,
                seeds=np.random.default_rng(index),
            )
            for index in range(WORKERS)
        ]
        return cls(server, workers, config)

    def run(self) -> None:
        """Take all turns; raises as ``turns`` does."""
        for _ in self.turns():
            pass

    def turns(self) -> Iterator[None]:
        """Train until the server has finished, or for MOST_STEPS steps; yield after every turn.

        Raises:
            AlgorithmError: a half violated the contract, or too few updates came of MOST_STEPS.
        """
        loops = [worker.loop() for worker in self.workers]
        for index, loop in enumerate(loops):
            self.server.join(index)
            next(loop)
        self.server.begin(self.now)
        for index in range(WORKERS):
            self._take(self.server.pull(index, self.now))
        while not self.server.finished and self._steps < MOST_STEPS:
            self._pass_time()
            if self._arrived:
                index = next(iter(self._arrived))
                action = loops[index].send(self._arrived.pop(index))
                while isinstance(action, Step) and self._steps < MOST_STEPS:
                    action = loops[index].send(self._computed())
                if isinstance(action, Push):  # a shard has samples at once, and no worker thinks
                    self._push(index, action)
            yield

    def renew_server(self) -> None:
        """Replace the server half by a new one with its state."""
        fresh = server_half(self.config)
        restore_half(fresh, as_written(pack_half(self.server.half)))
        self.server.half = fresh

    def renew_workers(self) -> None:
        """Replace every worker half with a new one, restored from its state."""
        for index, worker in enumerate(self.workers):
            fresh = worker_half(self.config, index)
            restore_half(fresh, as_written(pack_half(worker.half)))
            worker.half = fresh

    def take_over(self, state: PlainState) -> None:
        """Replace the server, which has died, by a new one with this state.

        Workers keep the replies they have received; a call without a reply is repeated.
        """
        self.server = Server(server_half(self.config), self.server.stop)
        self.server.restore(as_written(state))
        self.server.take_over()
        for index, worker in enumerate(self.workers):
            worker.order(self.server.standing(index), self.now)
            if index not in self._arrived and index in self._asked:
                self._push(index, self._asked[index])
            elif index not in self._arrived:
                self._take(self.server.pull(index, self.now))

    def _pass_time(self) -> None:
        """Advance to the next tick if no worker can act before it."""
        at = self.server.next_tick(self.now)
        if not self._arrived and at < inf:
            self.now = max(self.now, at)
        if at <= self.now:
            self._count()
            self._take(self.server.tick(self.now))

    def _computed(self) -> Computed:
        self._count()
        self.now += 1.0
        return Computed(self.now, gradient(self._steps), loss=1.0 / self._steps)

    def _count(self) -> None:
        self._steps += 1
        if self._steps >= MOST_STEPS and self.server.version < LEAST_UPDATES:
            nothing = f"fewer than {LEAST_UPDATES} updates in {MOST_STEPS:,} steps and ticks"
            raise breach(self.server.half, "push", nothing)

    def _push(self, index: int, action: Push) -> None:
        self._asked[index] = action
        self.pushes += 1
        try:
            effects = self.server.push(index, action.sequence, update=action.update, now=self.now)
        except RejectedError as error:
            refused = f"its update is refused: {error.message}"
            raise breach(self.workers[index].half, "step", refused) from None
        self._take(effects)

    def _take(self, effects: Effects) -> None:
        """Apply the effects of a call."""
        half = self.server.half
        for one in effects.applied:
            if not 0 <= one.sigma_mean <= one.sigma_max <= max(one.staleness, 0):
                raise breach(
                    half, "push", f"expected 0 <= sigma_mean <= sigma_max <= staleness, found {one}"
                )
            if not 0 <= one.step_scale <= 1:
                raise breach(half, "push", f"found {one}, expected 0 <= step_scale <= 1")
        for worker, standing in effects.orders.items():
            self.workers[worker].order(standing, self.now)
        for release in effects.releases:
            if release.reply is not None:
                # A worker has it as it was sent; the server half changes its own model meanwhile.
                arrived = Arrived(self.now, deepcopy(release.reply), release.standing)
                self._arrived[release.worker] = arrived
        if effects.measure:
            measured = Measured(self.now, half.version, loss=1.0 / (1 + half.version))
            self._take(self.server.measured(measured, metrics={}, now=self.now))


def as_written(state: PlainState) -> PlainState:
    """Return a state as restored from a checkpoint."""
    return PlainState(json.loads(json.dumps(state.tree)), state.arrays)


def server_half(config: AlgorithmConfig) -> ServerHalf[Any]:
    """Create a server half with a model drawn from a normal distribution."""
    rng = np.random.default_rng(0)
    parameters = rng.standard_normal(LAYOUT.size).astype(np.float32)
    half: ServerHalf[Any] = config.server(LAYOUT, WORKERS, parameters=parameters, rng=rng)
    return half


def worker_half(config: AlgorithmConfig, index: int = 0) -> WorkerHalf[Any]:
    """Create the worker half of this index."""
    half: WorkerHalf[Any] = config.worker(
        LAYOUT, WORKERS, rng=np.random.default_rng(index), index=index, shared_seed=7
    )
    return half


def gradient(seed: int) -> Vector:
    """Return a gradient drawn from a normal distribution."""
    return _noise(seed).copy()


@cache
def _noise(seed: int) -> Vector:
    """Cached, as all trials use the same gradients."""
    return np.random.default_rng(seed).standard_normal(LAYOUT.size).astype(np.float32)


def next_update(
    half: WorkerHalf[Any],
    *,
    seed: int,
    bad: float | None = None,
    server: ServerHalf[Any] | None = None,
    index: int = 0,
) -> Update:
    """Step until the half pushes, then overwrite the gradient, which was only lent.

    Args:
        half: a half that has received a reply.
        seed: seed of the gradients.
        bad: a value to put into every gradient.
        server: replies to messages, which have no step; without it, a message is returned.
        index: the half's worker, the only one that has joined the server.
    """
    for local_step in range(MOST_STEPS):
        now = float(local_step)
        samples = np.arange(half.next_batch_size(STREAM, now))
        update = half.on_samples(samples, now)
        if update is not None and server is None:
            return update
        if update is not None and server is not None:
            _answered(half, server, update, index)
        lent = gradient(seed + local_step)
        if bad is not None:
            lent[77] = bad
        half.loss = 1.0
        update = half.step(lent, len(samples), now)
        while isinstance(update, Update) and not update.steps and server is not None:
            update = _answered(half, server, update, index)
        if isinstance(update, Update):
            lent[:] = np.nan
            return update
        if update is not None:
            raise breach(half, "step", f"step returned {update!r}, expected an Update or None")
    raise breach(half, "step", f"nothing was pushed in {MOST_STEPS} steps")


def _answered(
    half: WorkerHalf[Any], server: ServerHalf[Any], message: Update, index: int
) -> Update | None:
    """Return the half's answer to the reply to its message."""
    server.push(index, message, 0.0)
    if not server.ready(index):
        raise breach(server, "ready", f"w{index} is the only worker, but waits for a reply")
    return half.receive(server.pull(index, 0.0), 0.0)


def pulled(config: AlgorithmConfig, index: int = 0) -> tuple[ServerHalf[Any], WorkerHalf[Any], int]:
    """Return a server half that one worker has joined, its worker half after a pull, its index.

    The index is ``index``, or that of the first ready worker: in some algorithms the server half
    draws the workers of a round.
    """
    server = server_half(config)
    for each in range(WORKERS):
        server.join(each)
    chosen = first_ready(server, index)
    for each in range(WORKERS):
        if each != chosen:
            server.leave(each, 0.0)
    half = worker_half(config, chosen)
    half.receive(server.pull(chosen, 0.0), 0.0)
    return server, half, chosen


def first_ready(server: ServerHalf[Any], wanted: int = 0) -> int:
    """Return the index of a ready worker: ``wanted`` if it is ready.

    Raises:
        AlgorithmError: no worker is ready.
    """
    ready = [index for index in range(WORKERS) if server.ready(index)]
    if not ready:
        raise breach(server, "ready", f"{WORKERS} workers have joined, but none is ready to start")
    return wanted if wanted in ready else ready[0]
