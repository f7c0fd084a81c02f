"""A learning rate that is divided by the staleness, and the record of an update it was used on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import Applied


def divisor(sigma: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
    """max(1, sigma): what the learning rate of an entry of staleness sigma is divided by."""
    divisor: NDArray[np.float32] = np.maximum(1, sigma).astype(np.float32)
    return divisor


def damped(learning_rate: float, divisor: NDArray[np.float32]) -> NDArray[np.float32]:
    """alpha / max(1, sigma), one rate per staleness, in float32 throughout.

    A float64 on either side of the division would round some rates differently, and algorithms that
    must agree bit by bit (all of them are plain SGD for one worker) no longer would.
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
    """The record of an update that is applied at the clock i, ``version``, by itself.

    It was computed on the model of the clock j, ``pulled``. ``sigma`` is the staleness that divided
    the learning rate of every entry that was sent, or of all at once; empty if none was sent.
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
