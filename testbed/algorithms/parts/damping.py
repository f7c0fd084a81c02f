"""A learning rate divided by the staleness, and the record of an update that used it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Applied


def divisor(sigma: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
    """Return max(1, sigma), the divisor of an entry's learning rate at staleness sigma."""
    divisor: NDArray[np.float32] = np.maximum(1, sigma).astype(np.float32)
    return divisor


def damped(learning_rate: float, divisor: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return alpha / max(1, sigma), one rate per staleness, in float32 throughout.

    A float64 operand would round some rates differently, and algorithms that must agree bit by bit
    (with one worker, all of them are plain SGD) would no longer agree.
    """
    return np.float32(learning_rate) / divisor


def applied(
    worker: int,
    version: int,
    *,
    pulled: int,
    sigma: NDArray[np.integer[Any]],
    divisor: NDArray[np.float32],
) -> Applied:
    """Return the record of a single update that is applied at clock i, ``version``.

    It was computed on the model of clock j, ``pulled``. ``sigma`` is the staleness that divided the
    learning rate of each sent entry, or of all entries together; empty if no entry was sent.
    """
    if sigma.size == 0:
        return Applied(worker, version, version - pulled)
    return Applied(
        worker,
        version,
        staleness=version - pulled,
        sigma_mean=float(np.add.reduce(sigma)) / sigma.size,
        sigma_max=int(np.maximum.reduce(sigma)),
        step_scale=float(np.add.reduce(np.reciprocal(divisor))) / sigma.size,
    )
