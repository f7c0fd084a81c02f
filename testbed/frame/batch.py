"""What a step computes on: the same for every driver of the frame."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from testbed.algorithms.base import Samples
from testbed.frame.worker import Step
from testbed.seeds import seed_globals


class Source(Protocol):
    """Has images and targets by their samples."""

    def batch(self, samples: Samples, draw: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Ready images (b, channels, height, width) and targets (b,)."""


def batch_of(step: Step, source: Source) -> tuple[NDArray[Any], NDArray[Any]]:
    """The images and targets of a step; its gradient is to be computed next.

    A step with a draw seeds the global generators. What a model, a loss or a transform draws from
    them then depends on nothing but the worker and the step, in whichever process that is.
    """
    if step.draw:
        seed_globals(step.draw)
    return source.batch(step.samples, step.draw)
