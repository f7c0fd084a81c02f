"""Where the gradients of a worker come from, live and simulated: a batch, and a ``Compute``.

``OwnCompute`` computes in this process. With ``compute: shared``, a live worker asks another
process (``testbed.roles.shared_compute``), which computes with an ``OwnCompute`` too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from testbed.algorithms.base import Samples
from testbed.algorithms.frame.actions import Step
from testbed.models import BoundModel
from testbed.payloads import Vector
from testbed.values.seeds import seed_globals


class Source(Protocol):
    """Provides images and targets by sample index."""

    def batch(self, samples: Samples, draw: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return prepared images (b, channels, height, width) and targets (b,)."""


def batch_of(step: Step, source: Source) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the images and targets of a step; compute its gradient next.

    A step with a draw seeds the global generators. The random numbers of a model, loss or
    transform then depend only on the worker and the step, not on the process.
    """
    if step.draw:
        seed_globals(step.draw)
    return source.batch(step.samples, step.draw)


class Gradient(NamedTuple):
    """A gradient of the mean loss of a step's samples.

    Attributes:
        loss: the mean loss; NaN if unknown.
        values: float32 (N,), lent until the next gradient.
        queued_seconds: real seconds for which the worker waited for its turn.
    """

    loss: float
    values: Vector
    queued_seconds: float = 0.0


class Compute(Protocol):
    """Computes the gradients of one worker or of several."""

    def gradient(self, step: Step, at: Vector) -> Gradient:
        """Return the gradient of a step at the parameters ``at``, float32 (N,)."""


@dataclass
class OwnCompute:
    """Computes in this process.

    Attributes:
        source: the samples.
        parameters: what the network is bound to; parameters elsewhere are copied there first.
        bound: the network.
    """

    source: Source
    parameters: Vector
    bound: BoundModel

    def gradient(self, step: Step, at: Vector) -> Gradient:
        """Compute a gradient; see Compute."""
        if at is not self.parameters:
            self.parameters[:] = at
        return Gradient(*self.bound.loss_and_gradient(*batch_of(step, self.source)))
