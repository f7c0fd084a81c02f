"""The batch of a training step, the same for every driver of the frame."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from testbed.algorithms.base import Samples
from testbed.algorithms.frame.actions import Step
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
