"""One simulated worker: what it does between a reply and its next push, all at once.

Nothing from outside can change what happens in between, so it may be computed at any real moment
before the push is due on the virtual clock, in any process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Reply, Update
from testbed.compress.payload import Vector
from testbed.datasets import Prepared
from testbed.frame.worker import Arrived, Computed, Loop, Passed, Pull, Push, Step, Think, Worker
from testbed.models import Bound, Evaluation


class Cycle(NamedTuple):
    """What a worker did with a reply.

    Attributes:
        worker: its index.
        sequence: number of the push.
        update: what it pushes.
        push_at: emulated time at which it pushes.
        compute_seconds: emulated seconds of its steps.
        think_seconds: emulated seconds between computing and pushing.
    """

    worker: int
    sequence: int
    update: Update
    push_at: float
    compute_seconds: float
    think_seconds: float


@dataclass
class Laboratory:
    """What the workers simulated in one process share: the data, and one network bound to a vector.

    Attributes:
        data: the prepared data set.
        parameters: float32 (N,): where a worker's parameters are put to compute at them.
        bound: the network at ``parameters``.
    """

    data: Prepared
    parameters: Vector
    bound: Bound

    def gradient(self, at: Vector, step: Step) -> Vector:
        """The gradient at the parameters ``at``; lent until the next call."""
        self.parameters[:] = at
        return self.bound.loss_and_gradient(*self.data.batch(step.samples))[1]

    def evaluate(self, at: Vector, images: NDArray[np.int64] | None) -> Evaluation:
        """Evaluate the parameters ``at`` on some test images (indices), or on all."""
        self.parameters[:] = at
        chosen = slice(None) if images is None else images
        return self.bound.evaluate(self.data.test_images[chosen], self.data.test_labels[chosen])


@dataclass
class Device:
    """A worker and its virtual time.

    Attributes:
        index: number of the worker.
        worker: the frame's half of it; its ``think`` must return ``next_think``.
        step_seconds: emulated seconds of one training step.
        next_think: the next draw of the think law, made by whoever keeps the clock.
    """

    index: int
    worker: Worker
    step_seconds: float
    next_think: float = 0.0
    _loop: Loop | None = field(default=None)

    def take_think(self) -> float:
        """The draw for the coming push; what the frame's worker calls."""
        return self.next_think

    def advance(self, reply: Reply, *, now: float, laboratory: Laboratory) -> Cycle:
        """Take a reply over at emulated time ``now`` and go on to the next push."""
        if self._loop is None:
            self._loop = self.worker.loop()
            if not isinstance(next(self._loop), Pull):
                raise AssertionError("a worker's loop begins with a pull")
        action = self._loop.send(Arrived(now, reply))
        compute = think = 0.0
        while not isinstance(action, Push):
            match action:
                case Step():
                    compute += self.step_seconds
                    now += self.step_seconds
                    gradient = laboratory.gradient(self.worker.half.parameters, action)
                    action = self._loop.send(Computed(now, gradient))
                case Think(seconds):
                    think += seconds
                    now += seconds
                    action = self._loop.send(Passed(now))
                case Pull():
                    raise AssertionError("a worker pulls once, at the beginning")
        return Cycle(
            worker=self.index,
            sequence=action.sequence,
            update=action.update,
            push_at=now,
            compute_seconds=compute,
            think_seconds=think,
        )
